// Moving the rows of jagged tensors. A jagged tensor is a matrix values [T, D] and offsets [B + 1]:
// rows offsets[b] to offsets[b + 1] are sequence b. All but repeat's backward pass copy rows of any
// dtype.
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
// row are adjacent.
//
// Aliasing: outputs must not overlap inputs.
// Determinism: the same bits for any number of threads.   Exactness: T0.
// Errors: the binding checks shapes, dtypes and offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace seqfuse::ops {

// Both directions of concat and split; what is read is not written.
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
};

// Both directions of dense conversion.
struct JaggedDenseParams {
  void* values;            // [offsets[B], dim]
  const int64_t* offsets;  // [B + 1]
  void* dense;             // [B, max_len, dim]
  const void* fill;        // one row [dim]: what goes where there is nothing to copy
  int64_t batch, max_len, dim, element_size;
  int64_t values_stride, dense_batch_stride, dense_stride;
};

struct JaggedRepeatParams {
  const void* rows;        // [B, dim]
  const int64_t* offsets;  // [B + 1]
  void* values;            // [offsets[B], dim]
  int64_t batch, dim, element_size;
  int64_t rows_stride, values_stride;
};

struct JaggedRepeatBackwardParams {
  const void* dvalues;     // T [offsets[B], dim], T float32 or float64
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

}  // namespace seqfuse::ops
