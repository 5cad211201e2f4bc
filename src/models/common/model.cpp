#include "models/common/model.h"

namespace seqfuse::models {

at::Device Model::device() const {
  return parameters().at(0).device();
}

}  // namespace seqfuse::models
