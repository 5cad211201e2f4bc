// GELU without branches or calls, in loops that the compiler vectorises.
#pragma once

#include <cmath>

#include "ops/cpu/simd_math.h"

namespace seqfuse::ops::cpu {

// x Phi(x), exact: with erf. Phi(-u) = exp(-q(u)), u >= 0, and q is smooth: a polynomial, fitted up to
// 12, that keeps the error of u Phi(-u) below 7e-9. From 13 on, Phi(-u) is taken as 2e-38. NaN gives NaN.
inline float gelu_erf(float x) {
  constexpr float kQ[] = {0x1.62e41ap-1F,  0x1.9885c6p-1F,   0x1.45e2fep-2F,  0x1.2afa48p-5F,
                          -0x1.4897bap-8F, 0x1.4bc27ep-13F,  0x1.eab8e2p-14F, -0x1.f98872p-16F,
                          0x1.dfdbbcp-19F, -0x1.cb4494p-23F, 0x1.60552ep-28F};
  constexpr int kTerms = static_cast<int>(sizeof kQ / sizeof kQ[0]);
  const float magnitude = std::fabs(x);
  const float u = magnitude > 13.0F ? 13.0F : magnitude;
  float q = kQ[kTerms - 1];
#pragma GCC unroll 16
  for (int i = kTerms - 2; i >= 0; --i) q = q * u + kQ[i];
  const float tail = exp(-q);
  return x * (x < 0.0F ? tail : 1.0F - tail);
}

// x (1 + tanh(z)) / 2 = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3): gelu_fast, gelu_new.
inline float gelu_tanh(float x) {
  constexpr float kTwice = 1.5957691216057308F;  // 2 sqrt(2 / pi)
  return x * sigmoid(kTwice * (x + 0.044715F * (x * x * x)));
}

}  // namespace seqfuse::ops::cpu
