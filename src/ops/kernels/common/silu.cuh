// The derivative of SiLU, as the kernels that multiply by it compute it.
#pragma once

#include <cuda_runtime.h>

namespace seqfuse::ops {

// For a finite x, a few units in the last place from silu'(x), and never NaN: where exp(-x) is
// infinite the sigmoid is 0. By approximations of one instruction each, since the exact division is
// longer than all else.
__device__ __forceinline__ float silu_gradient(float x) {
  float power, sigmoid;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1 + power));
  return sigmoid * fmaf(x, 1 - sigmoid, 1.0f);
}

}  // namespace seqfuse::ops
