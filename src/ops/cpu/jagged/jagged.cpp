#include "ops/kernels/jagged/jagged.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "ops/cpu/dispatch.h"

namespace seqfuse::ops {
namespace {

// Rows of bytes at some stride.
struct Rows {
  std::byte* first;
  int64_t stride;  // bytes from row to row

  Rows(const void* data, int64_t stride_elements, int64_t element_size)
      : first(const_cast<std::byte*>(static_cast<const std::byte*>(data))),
        stride(stride_elements * element_size) {}
  std::byte* row(int64_t i) const { return first + i * stride; }
};

void copy_rows(const Rows& from, int64_t from_row, const Rows& to, int64_t to_row, int64_t count,
               int64_t row_bytes) {
  if (from.stride == row_bytes && to.stride == row_bytes) {
    if (count > 0) std::memcpy(to.row(to_row), from.row(from_row), count * row_bytes);
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to.row(to_row + i), from.row(from_row + i), row_bytes);
}

// Copies the one row `from` to count rows starting at to_row.
void fill_rows(const std::byte* from, const Rows& to, int64_t to_row, int64_t count,
               int64_t row_bytes) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to.row(to_row + i), from, row_bytes);
}

// body(b) for each sequence, in parallel.
template <class Body>
void for_each_sequence(int64_t batch, Body&& body) {
  parallel_for(batch, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b);
  });
}

// The rows of sequence b in the dense tensor.
Rows dense_rows(const JaggedDenseParams& params, int64_t b) {
  return Rows(
      static_cast<std::byte*>(params.dense) + b * params.dense_batch_stride * params.element_size,
      params.dense_stride, params.element_size);
}

enum class Direction { to_values, to_parts };

void copy_parts(const JaggedPartsParams& params, Direction direction) {
  const int64_t row_bytes = params.dim * params.element_size;
  const Rows values(params.values, params.values_stride, params.element_size);
  for_each_sequence(params.batch, [&](int64_t b) {
    int64_t place = 0;  // of the sequence in values: after all parts of earlier sequences
    for (const auto& part : params.parts) place += part.offsets[b];
    for (const auto& part : params.parts) {
      const Rows rows(part.rows, part.stride, params.element_size);
      const int64_t first = part.offsets[b], count = part.offsets[b + 1] - first;
      if (direction == Direction::to_values) {
        copy_rows(rows, first, values, place, count, row_bytes);
      } else {
        copy_rows(values, place, rows, first, count, row_bytes);
      }
      place += count;
    }
  });
}

template <class T>
void repeat_backward(const JaggedRepeatBackwardParams& params) {
  for_each_sequence(params.batch, [&](int64_t b) {
    T* sum = static_cast<T*>(params.drows) + b * params.drows_stride;
    std::fill_n(sum, params.dim, T{0});
    for (int64_t i = params.offsets[b]; i < params.offsets[b + 1]; ++i) {
      const T* row = static_cast<const T*>(params.dvalues) + i * params.dvalues_stride;
#pragma omp simd
      for (int64_t j = 0; j < params.dim; ++j) sum[j] += row[j];
    }
  });
}

}  // namespace

void jagged_concat_cpu(const JaggedPartsParams& params) {
  copy_parts(params, Direction::to_values);
}

void jagged_split_cpu(const JaggedPartsParams& params) {
  copy_parts(params, Direction::to_parts);
}

void jagged_to_dense_cpu(const JaggedDenseParams& params) {
  const int64_t row_bytes = params.dim * params.element_size;
  const Rows values(params.values, params.values_stride, params.element_size);
  for_each_sequence(params.batch, [&](int64_t b) {
    const Rows dense = dense_rows(params, b);
    const int64_t first = params.offsets[b];
    const int64_t count = std::min(params.offsets[b + 1] - first, params.max_len);
    copy_rows(values, first, dense, 0, count, row_bytes);
    fill_rows(static_cast<const std::byte*>(params.fill), dense, count, params.max_len - count,
              row_bytes);
  });
}

void jagged_from_dense_cpu(const JaggedDenseParams& params) {
  const int64_t row_bytes = params.dim * params.element_size;
  const Rows values(params.values, params.values_stride, params.element_size);
  for_each_sequence(params.batch, [&](int64_t b) {
    const Rows dense = dense_rows(params, b);
    const int64_t first = params.offsets[b], length = params.offsets[b + 1] - first;
    const int64_t count = std::min(length, params.max_len);
    copy_rows(dense, 0, values, first, count, row_bytes);
    fill_rows(static_cast<const std::byte*>(params.fill), values, first + count, length - count,
              row_bytes);
  });
}

void jagged_repeat_forward_cpu(const JaggedRepeatParams& params) {
  const int64_t row_bytes = params.dim * params.element_size;
  const Rows rows(params.rows, params.rows_stride, params.element_size);
  const Rows values(params.values, params.values_stride, params.element_size);
  for_each_sequence(params.batch, [&](int64_t b) {
    const int64_t first = params.offsets[b];
    fill_rows(rows.row(b), values, first, params.offsets[b + 1] - first, row_bytes);
  });
}

void jagged_repeat_backward_cpu(const JaggedRepeatBackwardParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { repeat_backward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
