// The compiled kernels of softmax attention under a mask, as rows of tables from which
// choose_config picks.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "ops/kernels/attention/masked_config.h"

namespace seqfuse::ops::attention {

// Enqueues a row's kernel. Errors: those of the CUDA runtime.
using MaskedLaunch = cudaError_t (*)(const Config& config, const MaskedAttentionParams& params,
                                     DType dtype, cudaStream_t stream);

struct MaskedVariant {
  Config config;              // head_dim: the widest it takes
  int least_head_dim = 1;     // the narrowest
  bool copies_tiles = false;  // only for problems with copied_tiles
  MaskedLaunch launch = nullptr;
};

// The row that runs the problem on the device: see choose_config.
const MaskedVariant& choose_variant(const MaskedProblem& problem, const Device& device);

// A family's rows for a pass, preferred ones first; none: an older family runs it. Passes are in
// files of their own, which compile in parallel.
namespace sm80 {
std::span<const MaskedVariant> masked_variants(MaskedPass pass);  // these run every problem
std::span<const MaskedVariant> masked_forward_variants();
std::span<const MaskedVariant> masked_rows_variants();
std::span<const MaskedVariant> masked_queries_variants();
std::span<const MaskedVariant> masked_keys_variants();
}  // namespace sm80
namespace sm90 {
std::span<const MaskedVariant> masked_variants(MaskedPass pass);
std::span<const MaskedVariant> masked_forward_variants();
std::span<const MaskedVariant> masked_queries_variants();
std::span<const MaskedVariant> masked_keys_variants();
}  // namespace sm90

}  // namespace seqfuse::ops::attention
