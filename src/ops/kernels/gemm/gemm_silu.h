// A matrix product with bias and SiLU, the first product of an HSTU layer. CUDA only.
//
//   z = a b + bias, rounded to T      y = silu(z)
//
// T: float16 or bfloat16. Sums, bias and SiLU are computed in float32. m = 0 is allowed.
// Aliasing: none.
// Determinism: the same bits from run to run on the same kind of GPU.
// Exactness: T2, sums are re-associated.
// Errors: cudaErrorInvalidValue if gemm_silu_cuda_takes is false.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct GemmSiluParams {
  const void* a;     // T [m, k]
  const void* b;     // T [k, n]
  const void* bias;  // T [n]; null: none
  void* y;           // T [m, n]
  void* z;           // T [m, n]; null: not written
  int64_t m, n, k;
  int64_t a_stride, b_stride, y_stride, z_stride;  // elements from row to row
};

#ifdef SEQFUSE_CUDA_API
// True if n, k and the strides are multiples of 8, pointers are 16-byte aligned, n and k are not 0,
// sizes are below 2^30 and dtype is a T. Does not query the GPU.
bool gemm_silu_cuda_takes(const GemmSiluParams& params, DType dtype);

// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t gemm_silu_cuda(const GemmSiluParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
