// Samples by the numbering of kernels/sample_uniform.h, one at a time.
#pragma once

#include <torch/types.h>

#include "base/random.h"

namespace seqfuse::oracle {

inline at::Tensor sample_uniform(const at::Tensor& pool, int64_t count, uint64_t seed) {
  const Philox philox{.seed = seed, .stream = 0x73616D706C657300};
  at::Tensor samples = at::empty({count}, at::kInt);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = philox(16 * (i / 64) + i % 16)[i % 64 / 16];
    samples[i] = pool[Philox::below(word, static_cast<uint32_t>(pool.numel()))];
  }
  return samples;
}

}  // namespace seqfuse::oracle
