// The compiled kernels of softmax attention under a mask, as rows of a table.
#pragma once

#include <span>

#include "ops/kernels/attention/config.h"
#include "ops/kernels/attention/sm80/masked_parts.cuh"

namespace seqfuse::ops::attention {

// The kernels that walk lists of blocks: forward; dq; dk and dv.
enum class MaskedPass { forward, queries, keys };

struct MaskedVariant {
  Config config;  // head_dim: the widest it takes
  sm80::MaskedKernel f16, bf16;
};

// The narrowest kernel of a pass for a head_dim of 8 to 128.
const MaskedVariant& masked_variant(MaskedPass pass, int head_dim);

namespace sm80 {

// Narrowest first; each in a file of its own, which compile in parallel.
std::span<const MaskedVariant> masked_forward_variants();
std::span<const MaskedVariant> masked_queries_variants();
std::span<const MaskedVariant> masked_keys_variants();

template <class Shape>
constexpr Config masked_config(const char* kernel) {
  return {.kernel = kernel,
          .architecture = 80,
          .head_dim = Shape::kDim,
          .tile_queries = Shape::kM,
          .tile_keys = Shape::kN,
          .stages = Shape::kStages,
          .warps = Shape::kThreads / 32,
          .blocks = Shape::kBlocks,
          .shared_bytes = Shape::kSharedBytes};
}

}  // namespace sm80
}  // namespace seqfuse::ops::attention
