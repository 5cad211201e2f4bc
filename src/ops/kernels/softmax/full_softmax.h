// The softmax part of a cross entropy over many columns, for a block of rows of products from a
// matrix multiplication:
//
//   l_ij = products_ij / temperature
//   losses_i = -log softmax(l_i)_targets_i
//   products_ij <- weights_i (softmax(l_i)_j - [j = targets_i]) / temperature
//                  the derivative of sum_i weights_i losses_i by products_ij
//
// Row i's softmax leaves out the columns seen[seen_begin[i] : seen_end + i], except its target.
// Negative entries mean no column.
//
// T: float32 or float64 on the CPU, float32 on CUDA. products are contiguous; rows = 0 is allowed;
// columns is at least 1. Aliasing: products is overwritten, with intermediate values if weights is
// null; no other overlap. Determinism: the same bits for any number of threads, and from run to
// run on a GPU. Exactness: T2. Errors: the binding checks, on the CPU, that targets lie in [0,
// columns). CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct FullSoftmaxParams {
  void* products;                       // T [rows, columns]
  const int64_t* targets;               // [rows]
  void* losses;                         // T [rows]; null: not computed
  const void* weights;                  // T [rows]; null: no derivative
  const int64_t* seen = nullptr;        // null: no column is left out
  const int64_t* seen_begin = nullptr;  // [rows]
  int64_t seen_end = 0;
  int64_t rows, columns;
  double temperature;
};

void full_softmax_cpu(const FullSoftmaxParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t full_softmax_cuda(const FullSoftmaxParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
