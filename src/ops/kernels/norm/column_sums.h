// Sums of the columns of a matrix: the gradient of a bias.
//
//   sums_j = sum_i x_ij
//
// T: float32, float16 and bfloat16, on CUDA; sums in float32. rows = 0 is allowed and yields zeros;
// columns is at least 1. sums and workspace must not overlap anything.
// Determinism: the same bits from run to run on the same GPU.   Exactness: T2, re-associated.
// Errors: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct ColumnSumsParams {
  const void* x;     // T [rows, columns]
  float* sums;       // [columns]
  float* workspace;  // [column_sums_parts(rows, columns), columns]
  int64_t rows, columns;
  int64_t x_stride;  // elements from row to row
};

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t column_sums_cuda(const ColumnSumsParams& params, DType dtype, cudaStream_t stream);
// Rows of the workspace on the current device.
int64_t column_sums_parts(int64_t rows, int64_t columns);
#endif

}  // namespace seqfuse::ops
