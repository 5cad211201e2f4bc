// GELU, for CPU and CUDA code: what both compute in the same way.
#pragma once

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops {

// q(u) with Phi(-u) = exp(-q(u)), u in [0, 13], Phi the normal distribution. q is smooth: a polynomial,
// fitted up to 12, that keeps the error of u Phi(-u) below 7e-9.
SEQFUSE_HOST_DEVICE constexpr float gelu_tail_exponent(float u) {
  float q = 0x1.60552ep-28F;
  q = q * u - 0x1.cb4494p-23F;
  q = q * u + 0x1.dfdbbcp-19F;
  q = q * u - 0x1.f98872p-16F;
  q = q * u + 0x1.eab8e2p-14F;
  q = q * u + 0x1.4bc27ep-13F;
  q = q * u - 0x1.4897bap-8F;
  q = q * u + 0x1.2afa48p-5F;
  q = q * u + 0x1.45e2fep-2F;
  q = q * u + 0x1.9885c6p-1F;
  return q * u + 0x1.62e41ap-1F;
}
inline constexpr float kLargestGeluTail = 13.0F;  // from here on, Phi(-u) is taken as 2e-38

// x (1 + tanh(z)) / 2 = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3). Returns 2 z.
SEQFUSE_HOST_DEVICE constexpr float gelu_tanh_argument(float x) {
  return 1.5957691216057308F * (x + 0.044715F * (x * x * x));  // 2 sqrt(2 / pi)
}

}  // namespace seqfuse::ops
