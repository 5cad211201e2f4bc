// The head of a Hugging Face BertForSequenceClassification.
//
//   logits = classifier(tanh(pooler(state of the first token)))
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/bert/config.h"
#include "models/files/tensor_files.h"

namespace seqfuse::models::bert {

struct ClassifierHead {
  at::Tensor pooler_weight, pooler_bias;          // [H, H], [H]: bert.pooler.dense
  at::Tensor classifier_weight, classifier_bias;  // [C, H], [C], with C of 2 or more

  int64_t classes() const { return classifier_bias.numel(); }
};

// Throws DataError as make_weights does, and for fewer than 2 classes.
ClassifierHead make_classifier_head(const Config& config, const TensorMap& tensors,
                                    at::ScalarType dtype, at::Device device,
                                    const std::string& source);
ClassifierHead load_classifier_head(const Config& config, const std::filesystem::path& directory,
                                    at::ScalarType dtype, at::Device device);

}  // namespace seqfuse::models::bert
