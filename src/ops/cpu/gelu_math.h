// GELU without branches or calls, in loops that the compiler vectorises.
#pragma once

#include <cmath>

#include "ops/cpu/simd_math.h"
#include "ops/kernels/common/gelu.h"

namespace seqfuse::ops::cpu {

// x Phi(x), exact: with erf. NaN gives NaN.
inline float gelu_erf(float x) {
  const float magnitude = std::fabs(x);
  const float u = magnitude > kLargestGeluTail ? kLargestGeluTail : magnitude;
  const float tail = exp(-gelu_tail_exponent(u));
  return x * (x < 0.0F ? tail : 1.0F - tail);
}

// gelu_fast, gelu_new.
inline float gelu_tanh(float x) {
  return x * sigmoid(gelu_tanh_argument(x));
}

}  // namespace seqfuse::ops::cpu
