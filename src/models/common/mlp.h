// Small dense networks: the prediction head, and what brings table rows to the width of a token.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/common/init.h"

namespace seqfuse::models {

// Linear layers from in to each of widths, the activation ("relu" or "gelu") between them, none
// after the last. Weights xavier_uniform, biases 0.
torch::nn::Sequential make_mlp(int64_t in, const std::vector<int64_t>& widths,
                               const std::string& activation, bool bias, Initializer& init);

}  // namespace seqfuse::models
