// The kernels that gemm_silu.cu chooses from, and what they share. They require
// gemm_silu_cuda_takes and m > 0.
#pragma once

#include "ops/kernels/gemm/gemm_silu.h"

namespace seqfuse::ops {

cudaError_t gemm_silu_sm80(const GemmSiluParams& params, DType dtype, cudaStream_t stream);
cudaError_t gemm_silu_sm90(const GemmSiluParams& params, DType dtype, cudaStream_t stream);

// Accurate to a few float32 roundings; 0 below -87.
__device__ __forceinline__ float silu(float z) {
  return __fdividef(z, 1 + __expf(-z));
}

}  // namespace seqfuse::ops
