// Adding learned rows to the tokens of a jagged tensor, by position or by age.
//
//   y_i = scale x_i + table[index_i]
//   position: index_i = min(pos, high), pos from the start of the sequence,
//             high = min(length - num_targets, rows - 1): all targets share one position
//   time:     index_i = clamp(floor(sqrt(max(request - t_i, 0) / unit)), 0, rows - 1),
//             request: the last timestamp of the sequence
//
// Backward: dx = scale dy; dtable[r] = sum of dy_i over the i with index_i = r, in order of i.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA, where the backward pass
// is that of row_sums.h and a multiplication in PyTorch. tokens = 0, B = 0 and empty sequences are
// allowed; rows and dim are at least 1, tokens and rows below 2^31.
//
// Aliasing: y may be x, dx may be dy.
// Determinism: the same bits for any number of threads, without atomics; CUDA: row_sums.h.
// Exactness: T0 forward; T1 backward, the table's sums are in T (16-bit types: in float32).
// Errors: the binding checks shapes, dtypes, unit > 0, and on the CPU offsets and 0 <= num_targets
// <= length. CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct PositionIndexParams {
  const int64_t* offsets;             // [B + 1]
  const int64_t* num_targets;         // [B]; null: none
  int64_t* index;                     // [offsets[B]]
  int64_t batch, tokens, table_rows;  // tokens: CUDA
};

struct TimeIndexParams {
  const int64_t* offsets;             // [B + 1]
  const int64_t* timestamps;          // [offsets[B]]
  int64_t* index;                     // [offsets[B]]
  int64_t batch, tokens, table_rows;  // tokens: CUDA
  double unit;
};

struct EncodingParams {
  const void* x;         // T [tokens, dim]
  const void* table;     // T [table_rows, dim]
  const int64_t* index;  // [tokens]
  void* y;               // T [tokens, dim]
  int64_t tokens, dim;
  int64_t x_stride, table_stride, y_stride;  // elements from row to row
  double scale;
};

struct EncodingBackwardParams {
  const void* dy;        // T [tokens, dim], contiguous
  const int64_t* index;  // [tokens]
  void* dx;              // T [tokens, dim], contiguous; null: not wanted
  void* dtable;          // T [table_rows, dim], contiguous; null: not wanted
  int64_t tokens, dim, table_rows;
  double scale;
};

void position_index_cpu(const PositionIndexParams& params);
void time_index_cpu(const TimeIndexParams& params);
void encoding_forward_cpu(const EncodingParams& params, DType dtype);
void encoding_backward_cpu(const EncodingBackwardParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
cudaError_t position_index_cuda(const PositionIndexParams& params, cudaStream_t stream);
cudaError_t time_index_cuda(const TimeIndexParams& params, cudaStream_t stream);
cudaError_t encoding_forward_cuda(const EncodingParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
