// Layer norm over the rows of a matrix.
//
//   mean_i = sum_j x_ij / D      rstd_i = 1 / sqrt(sum_j (x_ij - mean_i)^2 / D + eps)
//   y_ij = (x_ij - mean_i) rstd_i w_j + b_j
//
// Backward, with n = (x - mean) rstd and g = dy w:
//   dx_ij = rstd_i (g_ij - sum_k g_ik / D - n_ij sum_k g_ik n_ik / D)
//   dw_j = sum_i dy_ij n_ij      db_j = sum_i dy_ij
//
// T: float64 and float32 on the CPU; float32, float16 and bfloat16 on CUDA. S, the statistics and
// the arithmetic: float64 where T is float64, else float32. rows = 0 is allowed; dim is at least 1.
//
// Aliasing: y may be x, dx may be dy or residual; no other outputs may overlap anything.
// Determinism: the same bits for any number of threads, and from run to run on the same GPU.
// Exactness: T2, sums over a row and over rows are re-associated.
// Errors: the binding checks shapes and dtypes. CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct LayerNormParams {
  const void* x;       // T [rows, dim]
  const void* weight;  // T [dim]; null: ones
  const void* bias;    // T [dim]; null: zeros
  void* y;             // T [rows, dim]
  void* mean;          // S [rows]
  void* rstd;          // S [rows]
  int64_t rows, dim;
  int64_t x_stride, y_stride;  // elements from row to row; within a row elements are adjacent
  double eps;
};

struct LayerNormBackwardParams {
  const void* x;       // T [rows, dim]
  const void* weight;  // T [dim]; null: ones
  const void* mean;    // S [rows], of the forward pass
  const void* rstd;    // S [rows], of the forward pass
  const void* dy;      // T [rows, dim]
  void* dx;            // T [rows, dim]
  void* dweight;       // T [dim]; null with dbias: neither is computed
  void* dbias;         // T [dim]
  float* workspace;    // CUDA, with dweight: [layer_norm_backward_partials(rows, dim), 2, dim]
  int64_t rows, dim;
  int64_t x_stride, dy_stride, dx_stride;
  // CUDA only: another gradient of x, T [rows, dim], which is added to dx. Null: none.
  const void* residual = nullptr;
  int64_t residual_stride = 0;
  bool float_gradients = false;  // CUDA only: dweight and dbias are float32
};

void layer_norm_forward_cpu(const LayerNormParams& params, DType dtype);
void layer_norm_backward_cpu(const LayerNormBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t layer_norm_forward_cuda(const LayerNormParams& params, DType dtype,
                                    cudaStream_t stream);
cudaError_t layer_norm_backward_cuda(const LayerNormBackwardParams& params, DType dtype,
                                     cudaStream_t stream);
// Rows of the backward pass's workspace on the current device.
int64_t layer_norm_backward_partials(int64_t rows, int64_t dim);
#endif

}  // namespace seqfuse::ops
