// Small dense networks: the prediction head, and projections from table rows to the token width.
#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "config/choices.h"
#include "models/common/init.h"

namespace seqfuse::models {

// Linear layers from in to each of widths, the activation between them, none after the last.
// Weights xavier_uniform, biases 0.
torch::nn::Sequential make_mlp(int64_t in, const std::vector<int64_t>& widths,
                               config::Activation activation, bool bias, Initializer& init);

}  // namespace seqfuse::models
