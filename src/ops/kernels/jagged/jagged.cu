// All copies run one kernel over the rows of a matrix: a few threads find a row's source and
// destination by binary search in the offsets and move it in the widest words that divide it.
#include "ops/kernels/jagged/jagged.h"

#include <cuda_runtime.h>

#include <cstddef>

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A row copy. from null: write zeros; to null: do nothing.
struct Move {
  const std::byte* from;
  std::byte* to;
};

// Rows of a matrix; stride in bytes.
struct Rows {
  std::byte* first;
  int64_t stride;
  Rows() = default;
  Rows(const void* data, int64_t stride_elements, int64_t element_size)
      : first(const_cast<std::byte*>(static_cast<const std::byte*>(data))),
        stride(stride_elements * element_size) {}
  __device__ std::byte* row(int64_t i) const { return first + i * stride; }
};

// find(row) returns the Move of a row. blockDim: (threads per row, rows).
template <class Word, class Find>
__global__ void __launch_bounds__(kThreads) copy_kernel(int64_t rows, int64_t words, Find find) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const Move move = find(row);
  if (!move.to) return;
  for (int64_t w = threadIdx.x; w < words; w += blockDim.x) {
    reinterpret_cast<Word*>(move.to)[w] =
        move.from ? reinterpret_cast<const Word*>(move.from)[w] : Word{};
  }
}

// Picks the word width by the matrices' addresses and strides in bytes.
template <class Find>
cudaError_t copy_rows(int64_t rows, int64_t row_bytes, std::initializer_list<Rows> matrices,
                      cudaStream_t stream, Find find) {
  if (rows == 0 || row_bytes == 0) return cudaSuccess;
  uint64_t bits = static_cast<uint64_t>(row_bytes);
  for (const Rows& matrix : matrices) {
    bits |= reinterpret_cast<uintptr_t>(matrix.first) | static_cast<uint64_t>(matrix.stride);
  }
  const auto launch = [&]<class Word>() {
    const int64_t words = row_bytes / static_cast<int64_t>(sizeof(Word));
    const dim3 block = row_block(words, kThreads);
    copy_kernel<Word><<<divide_up(rows, block.y), block, 0, stream>>>(rows, words, find);
  };
  if (bits % 16 == 0) {
    launch.template operator()<uint4>();
  } else if (bits % 8 == 0) {
    launch.template operator()<uint2>();
  } else if (bits % 4 == 0) {
    launch.template operator()<uint32_t>();
  } else if (bits % 2 == 0) {
    launch.template operator()<uint16_t>();
  } else {
    launch.template operator()<uint8_t>();
  }
  return cudaGetLastError();
}

// The parts of concat and split, in the kernel's parameters.
struct Parts {
  Rows rows[kMaxJaggedParts];
  const int64_t* offsets[kMaxJaggedParts];
  int count;
};

// Rows of values, each with its position in a part.
cudaError_t copy_parts(const JaggedPartsParams& params, bool to_values, cudaStream_t stream) {
  if (std::ssize(params.parts) > kMaxJaggedParts) return cudaErrorInvalidValue;
  if (params.batch == 0) return cudaSuccess;
  Parts parts{.count = static_cast<int>(params.parts.size())};
  const Rows values(params.values, params.values_stride, params.element_size);
  Rows widest = values;  // the bitwise or of all addresses and strides
  for (int p = 0; p < parts.count; ++p) {
    const auto& part = params.parts[p];
    parts.rows[p] = Rows(part.rows, part.stride, params.element_size);
    parts.offsets[p] = part.offsets;
    widest.first = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(widest.first) |
                                                reinterpret_cast<uintptr_t>(part.rows));
    widest.stride |= parts.rows[p].stride;
  }
  const int64_t batch = params.batch;
  return copy_rows(params.total, params.dim * params.element_size, {widest}, stream,
                   [=] __device__(int64_t row) -> Move {
                     const auto start = [&](int64_t b) {
                       int64_t sum = 0;
                       for (int p = 0; p < parts.count; ++p) sum += parts.offsets[p][b];
                       return sum;
                     };
                     const int64_t b = sequence_of(row, batch, start);
                     if (b == batch) return {};
                     int64_t place = row - start(b);  // within the sequence
                     for (int p = 0; p < parts.count; ++p) {
                       const int64_t first = parts.offsets[p][b];
                       const int64_t length = parts.offsets[p][b + 1] - first;
                       if (place < length) {
                         std::byte* part = parts.rows[p].row(first + place);
                         return to_values ? Move{part, values.row(row)}
                                          : Move{values.row(row), part};
                       }
                       place -= length;
                     }
                     return {};
                   });
}

// float32 sums of 16-bit types.
template <class T>
struct Sum {
  using Type = float;
  static __device__ float of(T v) { return to_float(v); }
  static __device__ T to(float v) { return from_float<T>(v); }
};
template <>
struct Sum<double> {
  using Type = double;
  static __device__ double of(double v) { return v; }
  static __device__ double to(double v) { return v; }
};

// One thread per column of a sequence.
template <class T>
__global__ void __launch_bounds__(kThreads)
    repeat_backward_kernel(JaggedRepeatBackwardParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.batch * params.dim) return;
  const int64_t b = i / params.dim, j = i % params.dim;
  const T* values = static_cast<const T*>(params.dvalues) + j;
  typename Sum<T>::Type sum = 0;
#pragma unroll 4
  for (int64_t row = params.offsets[b]; row < params.offsets[b + 1]; ++row)
    sum += Sum<T>::of(values[row * params.dvalues_stride]);
  static_cast<T*>(params.drows)[b * params.drows_stride + j] = Sum<T>::to(sum);
}

}  // namespace

cudaError_t jagged_concat_cuda(const JaggedPartsParams& params, cudaStream_t stream) {
  return copy_parts(params, true, stream);
}

cudaError_t jagged_split_cuda(const JaggedPartsParams& params, cudaStream_t stream) {
  return copy_parts(params, false, stream);
}

cudaError_t jagged_to_dense_cuda(const JaggedDenseParams& params, cudaStream_t stream) {
  const int64_t size = params.element_size, max_len = params.max_len;
  const int64_t* offsets = params.offsets;
  const Rows values(params.values, params.values_stride, size), fill(params.fill, 0, size);
  const Rows batches(params.dense, params.dense_batch_stride, size);
  const Rows rows(params.dense, params.dense_stride, size);
  return copy_rows(params.batch * max_len, params.dim * size, {values, fill, batches, rows}, stream,
                   [=] __device__(int64_t row) -> Move {
                     const int64_t b = row / max_len, i = row % max_len, first = offsets[b];
                     std::byte* to = batches.row(b) + i * rows.stride;
                     return {first + i < offsets[b + 1] ? values.row(first + i) : fill.first, to};
                   });
}

cudaError_t jagged_from_dense_cuda(const JaggedDenseParams& params, cudaStream_t stream) {
  const int64_t size = params.element_size, max_len = params.max_len, batch = params.batch;
  const int64_t* offsets = params.offsets;
  const Rows values(params.values, params.values_stride, size), fill(params.fill, 0, size);
  const Rows batches(params.dense, params.dense_batch_stride, size);
  const Rows rows(params.dense, params.dense_stride, size);
  return copy_rows(
      params.total, params.dim * size, {values, fill, batches, rows}, stream,
      [=] __device__(int64_t row) -> Move {
        const int64_t b = sequence_of(row, batch, [&](int64_t s) { return offsets[s]; });
        const int64_t i = b < batch ? row - offsets[b] : max_len;
        const std::byte* from = i < max_len ? batches.row(b) + i * rows.stride : fill.first;
        return {from, values.row(row)};
      });
}

cudaError_t jagged_repeat_forward_cuda(const JaggedRepeatParams& params, cudaStream_t stream) {
  const int64_t batch = params.batch, size = params.element_size;
  const int64_t* offsets = params.offsets;
  const Rows rows(params.rows, params.rows_stride, size);
  const Rows values(params.values, params.values_stride, size);
  return copy_rows(
      params.total, params.dim * size, {rows, values}, stream, [=] __device__(int64_t row) -> Move {
        const int64_t b = sequence_of(row, batch, [&](int64_t s) { return offsets[s]; });
        return {b < batch ? rows.row(b) : nullptr, values.row(row)};
      });
}

cudaError_t jagged_repeat_backward_cuda(const JaggedRepeatBackwardParams& params, DType dtype,
                                        cudaStream_t stream) {
  const int64_t elements = params.batch * params.dim;
  if (elements == 0) return cudaSuccess;
  const auto launch = [&]<class T>() {
    repeat_backward_kernel<T><<<divide_up(elements, kThreads), kThreads, 0, stream>>>(params);
  };
  if (dtype == DType::f64) {
    launch.template operator()<double>();
    return cudaGetLastError();
  }
  return dispatch_type(dtype, launch);
}

}  // namespace seqfuse::ops
