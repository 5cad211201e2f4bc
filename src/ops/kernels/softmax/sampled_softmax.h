// Sampled softmax: cross entropy of a positive table row among itself and K negatives, which are
// given per position.
//
//   l_t0 = <hidden_t, table[targets_t]> / temperature
//   l_tk = <hidden_t, table[negatives_tk]> / temperature; -5e4 if the negative is the target
//          (a collision), whose probability and gradients are then 0
//   losses_t = -log softmax(l_t)_0
//   coefficients_t = softmax(l_t) - (1, 0, ..., 0)       the derivative of losses_t by l_t
//   dhidden_t = sum_k coefficients_tk row_tk / temperature    that of losses_t by hidden_t
//
// The table's gradient is the sum of coefficients_tk hidden_t / temperature by row, computed by
// kernels/row_sums.h. Gathered rows are never stored; they are read in place, for the loss and,
// still in cache, for dhidden. Memory is that of the outputs, plus a copy of the table if dim is
// not a multiple of the vector width.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA. S, of the results and
// the arithmetic: float64 where T is float64, else float32. Matrices are contiguous; positions = 0
// and num_negatives = 0 are allowed; dim is at least 1. Outputs alias no input. Determinism: the
// same bits for any number of threads, and from run to run on a GPU. Exactness: T2. Errors: the
// binding checks, on the CPU, that every id lies in [0, num_rows); CUDA: the kernel stops with
// cudaErrorLaunchFailure at another. CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct SampledSoftmaxParams {
  const void* hidden;        // T [positions, dim]
  const void* table;         // T [num_rows, dim]
  const int64_t* targets;    // [positions]
  const int32_t* negatives;  // [positions, num_negatives]
  void* losses;              // S [positions]
  void* coefficients;        // S [positions, 1 + num_negatives]; null with dhidden: not computed
  void* dhidden;             // S [positions, dim]
  int64_t positions, num_negatives, dim, num_rows;
  double temperature;
};

void sampled_softmax_forward_cpu(const SampledSoftmaxParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t sampled_softmax_forward_cuda(const SampledSoftmaxParams& params, DType dtype,
                                         cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
