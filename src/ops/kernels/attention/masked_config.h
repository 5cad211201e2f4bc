// Which kernel of softmax attention under a mask runs a problem on a device, and how it is tiled.
#pragma once

#include "ops/kernels/attention/config.h"
#include "ops/kernels/attention/masked_attention.h"

namespace seqfuse::ops::attention {

// The kernels. A backward pass runs both of its own. masked_choice.h chooses between the two of the
// forward pass.
enum class MaskedPass {
  forward,           // by blocks
  forward_rows,      // a warp for each query
  backward_queries,  // dq
  backward_keys,     // dk and dv
};

struct MaskedProblem {
  MaskedPass pass = MaskedPass::forward;
  int head_dim = 0;  // 8 to 128, a multiple of 8
  // Whether a copy engine can take tiles of the inputs (q, k, v; backward: also dout): sizes are
  // positive and below 2^31, strides positive multiples of 16 bytes below 2^40, and the mask's step
  // divides queries and keys.
  bool copied_tiles = true;
};

MaskedProblem problem_of(MaskedPass pass, const MaskedAttentionParams& params);

// The only place that chooses kernels: the first row that fits of the newest family
// (masked_variant.h). Throws std::runtime_error for a device older than SM 8.0 or with less than 99
// KiB of shared memory per block.
Config choose_config(const MaskedProblem& problem, const Device& device);

// With SEQFUSE_LOG_KERNELS=1 in the environment: prints the choice to standard error, once per
// problem and config.
void log_choice(const MaskedProblem& problem, const Config& config, DType dtype);

}  // namespace seqfuse::ops::attention
