// Rows scaled to unit length.
//
//   norm_i = sqrt(sum_j x_ij^2)      y_ij = x_ij / max(norm_i, eps)
//
// Backward: where norm_i > eps, dx_ij = (dy_ij - y_ij sum_k dy_ik y_ik) / norm_i, else dy_ij / eps.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA. S, norm and the
// arithmetic: float64 where T is float64, else float32. rows = 0 is allowed; dim is at least 1.
// Aliasing: y may be x, dx may be dy.
// Determinism: the same bits for any number of threads, and from run to run on a GPU.
// Exactness: T2, sums are re-associated.
// Errors: the binding checks shapes, dtypes and eps > 0. CUDA: cudaErrorInvalidValue for another
// dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct L2NormalizeParams {
  const void* x;  // T [rows, dim]
  void* y;        // T [rows, dim]
  void* norm;     // S [rows]
  int64_t rows, dim;
  int64_t x_stride, y_stride;  // elements from row to row
  double eps;
};

struct L2NormalizeBackwardParams {
  const void* x;     // T [rows, dim]
  const void* norm;  // S [rows], of the forward pass
  const void* dy;    // T [rows, dim]
  void* dx;          // T [rows, dim]
  int64_t rows, dim;
  int64_t x_stride, dy_stride, dx_stride;
  double eps;
};

void l2_normalize_forward_cpu(const L2NormalizeParams& params, DType dtype);
void l2_normalize_backward_cpu(const L2NormalizeBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t l2_normalize_forward_cuda(const L2NormalizeParams& params, DType dtype,
                                      cudaStream_t stream);
cudaError_t l2_normalize_backward_cuda(const L2NormalizeBackwardParams& params, DType dtype,
                                       cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
