// --dtype of verbs that run a BERT.
#pragma once

#include <string>

#include "models/bert/model.h"

namespace seqfuse::cli {

// name: float32, float64, float16, bfloat16, or auto (models::bert::default_dtype).
inline at::ScalarType encoder_dtype(const std::string& name, const std::string& model,
                                    at::Device device) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  if (name == "float16") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  return models::bert::default_dtype(model, device);
}

}  // namespace seqfuse::cli
