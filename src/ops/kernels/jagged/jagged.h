// Copies rows of jagged tensors. A jagged tensor is a matrix values [T, D] with offsets [B + 1]:
// rows offsets[b] to offsets[b + 1] are sequence b. All operations but repeat's backward pass copy
// rows of any dtype.
//
//   concat    values = for each b: rows of parts[0], then of parts[1], ...   (backward: split)
//   split     the inverse                                                    (backward: concat)
//   to_dense  dense[b, i] = values[offsets[b] + i] for i < min(length, N), else padding
//             (backward: from_dense with zeros for the rows beyond N)
//   from_dense  values[offsets[b] + i] = dense[b, i]                (backward: to_dense, padding 0)
//   repeat    values[offsets[b] + i] = rows[b]
//             (backward: drows[b] = sum_i dvalues[offsets[b] + i], in order of i)
//
// B = 0, T = 0, empty sequences and D = 0 are allowed. Strides are in elements; the elements of a
// row are adjacent. On CUDA offsets are in the GPU's memory, so that the number of rows of values
// is a parameter, total; rows of values beyond offsets[B] become padding or 0.
//
// Aliasing: outputs must not overlap inputs.
// Determinism: the same bits for any number of threads, and from run to run on a GPU.
// Exactness: T0; repeat's backward sums of 16-bit types, CUDA: in float32.
// Errors: the binding checks shapes and dtypes, and on the CPU offsets. CUDA: cudaErrorInvalidValue
// for more than kMaxJaggedParts parts, or another dtype.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

constexpr int64_t kMaxJaggedParts = 8;  // on CUDA

// Both directions of concat and split; the source is not modified.
struct JaggedPartsParams {
  struct Part {
    void* rows;              // [offsets[B], dim]
    const int64_t* offsets;  // [B + 1]
    int64_t stride;
  };
  std::vector<Part> parts;
  void* values;  // [sum of the parts' rows, dim]
  int64_t batch, dim, element_size;
  int64_t values_stride;
  int64_t total;  // rows of values; CUDA
};

// Both directions of dense conversion.
struct JaggedDenseParams {
  void* values;            // [offsets[B], dim]
  const int64_t* offsets;  // [B + 1]
  void* dense;             // [B, max_len, dim]
  const void* fill;        // one row [dim] to fill gaps with
  int64_t batch, max_len, dim, element_size;
  int64_t values_stride, dense_batch_stride, dense_stride;
  int64_t total;  // rows of values; CUDA
};

struct JaggedRepeatParams {
  const void* rows;        // [B, dim]
  const int64_t* offsets;  // [B + 1]
  void* values;            // [offsets[B], dim]
  int64_t batch, dim, element_size;
  int64_t rows_stride, values_stride;
  int64_t total;  // rows of values; CUDA
};

struct JaggedRepeatBackwardParams {
  const void* dvalues;     // T [offsets[B], dim]; T: float32, float64; CUDA: also 16-bit
  const int64_t* offsets;  // [B + 1]
  void* drows;             // T [B, dim]
  int64_t batch, dim;
  int64_t dvalues_stride, drows_stride;
};

void jagged_concat_cpu(const JaggedPartsParams& params);
void jagged_split_cpu(const JaggedPartsParams& params);
void jagged_to_dense_cpu(const JaggedDenseParams& params);
void jagged_from_dense_cpu(const JaggedDenseParams& params);
void jagged_repeat_forward_cpu(const JaggedRepeatParams& params);
void jagged_repeat_backward_cpu(const JaggedRepeatBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t jagged_concat_cuda(const JaggedPartsParams& params, cudaStream_t stream);
cudaError_t jagged_split_cuda(const JaggedPartsParams& params, cudaStream_t stream);
cudaError_t jagged_to_dense_cuda(const JaggedDenseParams& params, cudaStream_t stream);
cudaError_t jagged_from_dense_cuda(const JaggedDenseParams& params, cudaStream_t stream);
cudaError_t jagged_repeat_forward_cuda(const JaggedRepeatParams& params, cudaStream_t stream);
cudaError_t jagged_repeat_backward_cuda(const JaggedRepeatBackwardParams& params, DType dtype,
                                        cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
