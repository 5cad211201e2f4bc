// Layer norms fused with residual additions: the operators between the blocks of a transformer.
//
//   s = x, x + a, or (x + a) + b     each sum rounded to T, in this order
//   n_ij = (s_ij - mean_i) rstd_i    mean_i, rstd_i of row i of s, as in layer_norm.h
//   y_ij = n_ij w_j + c_j, or n_ij w_j + c_j + r_ij
//   y2_ij = n_ij w2_j + c2_j         a second norm with the same statistics
//
//   layer norm + residual: x, w, c, r -> y                      post-norm blocks
//   add + layer norm:      x, a, w, c -> s, y                   sequential blocks
//   dual layer norm:       x, w, c, w2, c2 -> y, y2             parallel blocks (GPT-NeoX), the first
//   add + dual layer norm: x, a, b, w, c, w2, c2 -> s, y, y2    parallel blocks: (mlp + attention) +
//                                                               hidden, then the next layer's norms
//
// T: float64 and float32 on the CPU; float32, float16 and bfloat16 on CUDA. S, the statistics and
// the arithmetic: float64 where T is float64, else float32. rows = 0 is allowed; dim is at least 1.
//
// Aliasing: sum may be x, a or b; no other output may overlap anything.
// Determinism: the same bits for any number of threads and rows, and from run to run.
// Exactness: s is T0, bit-equal to the framework's additions; y and y2 are T2: sums over a row are
// re-associated, and r is added before the one rounding to T.
// Errors: the binding checks shapes and dtypes. CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct ResidualNormParams {
  const void* x;                   // T [rows, dim]
  const void* a = nullptr;         // T [rows, dim]; null: s is x
  const void* b = nullptr;         // T [rows, dim]; null: s is x + a
  void* sum = nullptr;             // T [rows, dim], contiguous: s; null: not wanted
  const void* weight;              // T [dim]; null: ones
  const void* bias;                // T [dim]; null: zeros
  const void* residual = nullptr;  // r, T [rows, dim]; null: none
  void* y;                         // T [rows, dim], contiguous
  const void* weight2 = nullptr;   // T [dim]; null: ones
  const void* bias2 = nullptr;     // T [dim]; null: zeros
  void* y2 = nullptr;              // T [rows, dim], contiguous; null: no second norm
  void* mean = nullptr;            // S [rows]; null, as rstd: not wanted
  void* rstd = nullptr;            // S [rows]
  int64_t rows, dim;
  // Elements from row to row; within a row elements are adjacent.
  int64_t x_stride, a_stride = 0, b_stride = 0, residual_stride = 0;
  double eps;
};

void residual_norm_forward_cpu(const ResidualNormParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t residual_norm_forward_cuda(const ResidualNormParams& params, DType dtype,
                                       cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
