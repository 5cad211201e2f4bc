// Dropout factors, element by element from base/random.h.
#pragma once

#include <torch/types.h>

#include <cmath>

#include "base/random.h"

namespace seqfuse::oracle {

// Factors of elements 0 to count: 0 or 1 / (1 - p), float64.
inline at::Tensor dropout_factors(int64_t count, double p, uint64_t seed) {
  const Philox philox{seed, 0x64726F706F757400};
  at::Tensor factors = at::empty({count}, at::kDouble);
  auto out = factors.accessor<double, 1>();
  for (int64_t e = 0; e < count; ++e) {
    const uint32_t word = philox(static_cast<uint64_t>(16 * (e / 64) + e % 16))[e % 64 / 16];
    out[e] = word < std::round(p * 0x1p32) ? 0.0 : 1 / (1 - p);
  }
  return factors;
}

}  // namespace seqfuse::oracle
