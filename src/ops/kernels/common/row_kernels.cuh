// Shared by kernels that work on matrix rows: conversion to float32, vector loads, sums over the
// threads of a row, choice of types and widths at launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "base/dtype.h"

namespace seqfuse::ops::cuda {

__device__ inline float to_float(float v) {
  return v;
}
__device__ inline float to_float(__half v) {
  return __half2float(v);
}
__device__ inline float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

template <class T>
__device__ T from_float(float v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else {
    return __float2bfloat16_rn(v);
  }
}

// Width adjacent elements, moved by one instruction.
template <class T, int Width>
struct alignas(Width * sizeof(T)) Pack {
  T v[Width];
};

// Elements j to j + Width of a row of dim; elements past its end become otherwise.
template <int Width, class T>
__device__ Pack<T, Width> load(const T* row, int64_t j, int64_t dim, float otherwise = 0) {
  if (j + Width <= dim) return *reinterpret_cast<const Pack<T, Width>*>(row + j);
  Pack<T, Width> pack;
#pragma unroll
  for (int k = 0; k < Width; ++k) pack.v[k] = j + k < dim ? row[j + k] : from_float<T>(otherwise);
  return pack;
}

template <int Width, class T>
__device__ void store(T* row, int64_t j, int64_t dim, const Pack<T, Width>& pack) {
  if (j + Width <= dim) {
    *reinterpret_cast<Pack<T, Width>*>(row + j) = pack;
  } else {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      if (j + k < dim) row[j + k] = pack.v[k];
    }
  }
}

// v = sums of v over the group, the same bits in each thread. scratch: [N * Group / 32] shared
// floats if Group is more than a warp; the group is then the whole block.
template <int Group, int N>
__device__ void group_sum(float (&v)[N], float* scratch) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v[n] += __shfl_xor_sync(0xFFFFFFFF, v[n], mask);
  }
  if constexpr (Group > 32) {
    constexpr int kWarps = Group / 32;
    __syncthreads();  // previous sums have been read
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) scratch[n * kWarps + threadIdx.x / 32] = v[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; ++n) {
      v[n] = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v[n] += scratch[n * kWarps + w];
    }
  }
}

// Multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

inline unsigned divide_up(int64_t n, int64_t d) {
  return static_cast<unsigned>((n + d - 1) / d);
}

// The sequence that contains row, where sequence b starts at row start(b); batch if row is past the
// last sequence.
template <class Start>
__device__ int64_t sequence_of(int64_t row, int64_t batch, Start&& start) {
  int64_t low = 0,
          high = batch + 1;  // start(low) <= row < start(high), taking start(batch + 1) = inf
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (start(middle) <= row ? low : high) = middle;
  }
  return low;
}

// Block shape (threads per row, rows) for rows of some words, one thread per word.
inline dim3 row_block(int64_t words, unsigned threads) {
  unsigned lanes = 1;
  while (lanes < words && lanes < threads) lanes *= 2;
  return {lanes, threads / lanes};
}

// Null pointers (absent tensors) count as aligned.
inline bool all_aligned(std::initializer_list<const void*> pointers, int64_t bytes) {
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) return false;
  }
  return true;
}

inline bool all_divisible(std::initializer_list<int64_t> values, int64_t divisor) {
  for (const int64_t value : values) {
    if (value % divisor != 0) return false;
  }
  return true;
}

// Calls launch.template operator()<T>() with the type of a dtype.
template <class Launch>
cudaError_t dispatch_type(DType dtype, Launch&& launch) {
  switch (dtype) {
    case DType::f32:
      launch.template operator()<float>();
      break;
    case DType::f16:
      launch.template operator()<__half>();
      break;
    case DType::bf16:
      launch.template operator()<__nv_bfloat16>();
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

// Calls launch.template operator()<T, Width>() with the widest loads that all pointers and strides
// allow.
template <class Launch>
cudaError_t dispatch(DType dtype, std::initializer_list<const void*> pointers,
                     std::initializer_list<int64_t> strides, Launch&& launch) {
  const bool wide = all_aligned(pointers, 16) && all_divisible(strides, 16 / size_of(dtype));
  return dispatch_type(dtype, [&]<class T>() {
    wide ? launch.template operator()<T, 16 / sizeof(T)>() : launch.template operator()<T, 1>();
  });
}

}  // namespace seqfuse::ops::cuda
