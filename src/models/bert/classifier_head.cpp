#include "models/bert/classifier_head.h"

#include "base/error.h"
#include "models/bert/named_tensors.h"

namespace seqfuse::models::bert {

ClassifierHead make_classifier_head(const Config& config, const TensorMap& tensors,
                                    at::ScalarType dtype, at::Device device,
                                    const std::string& source) {
  NamedTensors named(tensors, at::TensorOptions(device).dtype(dtype), source);
  const int64_t h = config.hidden_size;
  ClassifierHead head;
  named.take_linear("pooler.dense", h, h, head.pooler_weight, head.pooler_bias);
  const std::vector<int64_t> shape = named.shape("classifier.bias");
  const int64_t classes = shape.size() == 1 ? shape[0] : 0;
  SEQFUSE_CHECK_AS(DataError, classes >= 2,
                   "{}: the classifier has {} outputs; expected 2 classes or more", source,
                   classes);
  named.take_linear("classifier", classes, h, head.classifier_weight, head.classifier_bias);
  return head;
}

ClassifierHead load_classifier_head(const Config& config, const std::filesystem::path& directory,
                                    at::ScalarType dtype, at::Device device) {
  const TensorFiles files(directory);
  return make_classifier_head(config, files.tensors(), dtype, device, files.source());
}

}  // namespace seqfuse::models::bert
