// The derivative of SiLU, shared by kernels that multiply by it.
#pragma once

#include <cuda_runtime.h>

namespace seqfuse::ops {

// For finite x within a few ulps of silu'(x), and never NaN: where exp(-x) overflows, the sigmoid
// is 0. Uses approximate single instructions, since an exact division would take longer than the
// rest.
__device__ __forceinline__ float silu_gradient(float x) {
  float power, sigmoid;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1 + power));
  return sigmoid * fmaf(x, 1 - sigmoid, 1.0f);
}

}  // namespace seqfuse::ops
