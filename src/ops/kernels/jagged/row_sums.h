// Weighted sums of rows by id: the table gradient of every operator that gathers rows.
//
//   sums[v] = sum over (t, c) with id(t, c) = v of weights[t, c] rows[t], in order of t, then of c
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA, with weights and sums in
// float32. Matrices are contiguous; positions = 0 is allowed; dim and columns are at least 1,
// positions and num_rows below 2^31. Outputs alias no input. Memory: 12 (float32) or 16 (float64)
// bytes per term (t, c), plus a copy of rows if dim is not a multiple of the vector width; never
// terms times dim. CUDA: none, or with sorted terms 12 bytes per term plus the sort's. Determinism:
// the same bits for any number of threads, without atomics. CUDA: atomics, in any order; or sorted
// terms, the same bits from run to run. Exactness: T1. Errors: the binding checks, on the CPU, that
// every id is in [0, num_rows). CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct RowSumParams {
  const void* rows;         // T [positions, dim]
  const int64_t* ids;       // [positions]: column 0
  const int32_t* more_ids;  // [positions, columns - 1]: the other columns; null where columns = 1
  const void* weights;      // T (CUDA: float) [positions, columns]; null: all 1
  int64_t positions, columns, dim;
  int64_t num_rows;  // rows of the sums
};

// The terms sorted by id, ready to be summed. Keeps a reference to params.rows.
class RowSums {
 public:
  virtual ~RowSums() = default;

  // Writes every row; rows without a term are 0. sums: T [num_rows, dim].
  virtual void write_dense(void* sums) const = 0;

  // Writes only the rows with a term, in order of id: ids [n], sums T [n, dim], with n =
  // count_touched(), which must be called first.
  virtual int64_t count_touched() = 0;
  virtual void write_touched(int64_t* ids, void* sums) const = 0;
};

std::unique_ptr<RowSums> make_row_sums_cpu(const RowSumParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
struct RowSumCudaParams {
  RowSumParams terms;
  float* sums;  // [num_rows, dim]; must be zeros if order is null, as sums are added
  // The ids of all terms, ascending, and where each comes from: t columns + c, ascending among
  // equal ids. Both null: sum by atomics.
  const int32_t* sorted_ids;  // [positions columns]
  const int64_t* order;       // [positions columns]
};

// Enqueues on the current device's stream; no allocation, no synchronisation. dtype: that of rows.
cudaError_t row_sums_cuda(const RowSumCudaParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
