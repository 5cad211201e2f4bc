// SiLU of the accumulators of products.
#pragma once

namespace seqfuse::ops {

// Accurate to a few float32 roundings; 0 below -87.
__device__ __forceinline__ float silu(float z) {
  return __fdividef(z, 1 + __expf(-z));
}

}  // namespace seqfuse::ops
