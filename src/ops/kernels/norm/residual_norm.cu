// A block works on one row, or on several rows of one warp each. A thread keeps its elements of s
// in registers, loaded 16 bytes at a time if pointers, strides and dim allow. All loads are issued
// before the first reduction: at batch 1 the kernel takes one trip to memory and two reductions.
// Inputs that are read once bypass L1, which keeps the weights. For rows of more than 16384
// elements, each of three passes recomputes s.
#include "ops/kernels/norm/residual_norm.h"

#include "ops/kernels/common/rounded.cuh"
#include "ops/kernels/norm/layer_norm_rows.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kFewItems = 8, kManyItems = 16;  // elements of a row per thread
// Threads per block. With few items all loads are in flight together, which needs registers.
template <int Items>
constexpr int kMaxThreads = Items == kFewItems ? 640 : 1024;
constexpr int kStreamThreads = 1024;

template <class T, int Width>
using Piece = Packed<T, Width>;

template <class T, int Width>
__device__ Piece<T, Width> load_once(const void* matrix, int64_t index) {
  const T* from = static_cast<const T*>(matrix) + index;
  Piece<T, Width> piece;
  if constexpr (sizeof(piece) == 16) {
    reinterpret_cast<uint4&>(piece) = __ldcs(reinterpret_cast<const uint4*>(from));
  } else {
    piece = *reinterpret_cast<const Piece<T, Width>*>(from);
  }
  return piece;
}

template <class T, int Width>
__device__ Piece<T, Width> load_or(const void* vector, int64_t j, float otherwise) {
  if (vector) return *reinterpret_cast<const Piece<T, Width>*>(static_cast<const T*>(vector) + j);
  float all[Width];
#pragma unroll
  for (float& v : all) v = otherwise;
  return Piece<T, Width>::of(all);
}

template <class T, int Width>
__device__ void store(void* matrix, int64_t index, const Piece<T, Width>& piece) {
  *reinterpret_cast<Piece<T, Width>*>(static_cast<T*>(matrix) + index) = piece;
}

// Loaded terms of s: Width elements at column j of a row.
template <class T, int Width>
struct Terms {
  Piece<T, Width> x, a, b;

  __device__ void load(const ResidualNormParams& params, int64_t row, int64_t j) {
    x = load_once<T, Width>(params.x, row * params.x_stride + j);
    if (params.a) a = load_once<T, Width>(params.a, row * params.a_stride + j);
    if (params.b) b = load_once<T, Width>(params.b, row * params.b_stride + j);
  }

  __device__ void add(const ResidualNormParams& params, float (&s)[Width]) const {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      s[k] = x[k];
      if (params.a) s[k] = rounded<T>(s[k] + a[k]);
      if (params.b) s[k] = rounded<T>(s[k] + b[k]);
    }
  }
};

// The sum over a row's threads (threadIdx.x of the block), the same bits in each. scratch: 32
// floats that no other sum of the kernel uses; needed if a row has more than a warp.
__device__ float row_sum(float v, float* scratch) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xFFFFFFFF, v, mask);
  if (blockDim.x == 32) return v;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : 0;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xFFFFFFFF, v, mask);
  return v;
}

// y and, if wanted, y2 at columns j to j + Width.
template <class T, int Width>
__device__ void write_norms(const ResidualNormParams& params, int64_t at, const float (&n)[Width],
                            const Piece<T, Width>& weight, const Piece<T, Width>& bias,
                            const Piece<T, Width>& residual, const Piece<T, Width>& weight2,
                            const Piece<T, Width>& bias2) {
  float y[Width];
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    y[k] = n[k] * weight[k] + bias[k];
    if (params.residual) y[k] += residual[k];
  }
  store(params.y, at, Piece<T, Width>::of(y));
  if (!params.y2) return;
#pragma unroll
  for (int k = 0; k < Width; ++k) y[k] = n[k] * weight2[k] + bias2[k];
  store(params.y2, at, Piece<T, Width>::of(y));
}

__device__ void write_statistics(const ResidualNormParams& params, int64_t row, float mean,
                                 float rstd) {
  if (!params.mean || threadIdx.x > 0) return;
  static_cast<float*>(params.mean)[row] = mean;
  static_cast<float*>(params.rstd)[row] = rstd;
}

// Rows of up to blockDim.x * Items elements; blockDim.y rows per block if blockDim.x is a warp.
template <class T, int Width, int Items>
__global__ void __launch_bounds__(kMaxThreads<Items>)
    residual_norm_kernel(const __grid_constant__ ResidualNormParams params) {
  constexpr int kPieces = Items / Width;
  // There are registers to fetch the weights before the statistics are known.
  constexpr bool kEarlyWeights = Items == kFewItems;
  __shared__ float scratch[2][32];
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= params.rows) return;
  const int dim = static_cast<int>(params.dim);
  const auto column = [](int p) { return static_cast<int>(p * blockDim.x + threadIdx.x) * Width; };

  float s[kPieces][Width] = {};
  Piece<T, Width> weight[kPieces], bias[kPieces], weight2[kPieces], bias2[kPieces],
      residual[kPieces];
  const auto load_weights = [&](int p) {
    const int j = column(p);
    weight[p] = load_or<T, Width>(params.weight, j, 1);
    bias[p] = load_or<T, Width>(params.bias, j, 0);
    if (params.y2) {
      weight2[p] = load_or<T, Width>(params.weight2, j, 1);
      bias2[p] = load_or<T, Width>(params.bias2, j, 0);
    }
    if (params.residual)
      residual[p] = load_once<T, Width>(params.residual, row * params.residual_stride + j);
  };
  {
    Terms<T, Width> terms[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (column(p) < dim) terms[p].load(params, row, column(p));
    }
    if constexpr (kEarlyWeights) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        if (column(p) < dim) load_weights(p);
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (column(p) < dim) terms[p].add(params, s[p]);
    }
  }

  float sum = 0;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
#pragma unroll
    for (int k = 0; k < Width; ++k) sum += s[p][k];
  }
  const float mean = row_sum(sum, scratch[0]) / static_cast<float>(dim);
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (column(p) >= dim) continue;
#pragma unroll
    for (int k = 0; k < Width; ++k) squares += (s[p][k] - mean) * (s[p][k] - mean);
  }
  const float variance = row_sum(squares, scratch[1]) / static_cast<float>(dim);
  const float rstd = 1 / sqrtf(variance + static_cast<float>(params.eps));

#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int j = column(p);
    if (j >= dim) continue;
    if constexpr (!kEarlyWeights) load_weights(p);
    const int64_t at = row * dim + j;
    if (params.sum) store(params.sum, at, Piece<T, Width>::of(s[p]));
    float n[Width];
#pragma unroll
    for (int k = 0; k < Width; ++k) n[k] = (s[p][k] - mean) * rstd;
    write_norms(params, at, n, weight[p], bias[p], residual[p], weight2[p], bias2[p]);
  }
  write_statistics(params, row, mean, rstd);
}

// Rows of any length. sum may alias one of the terms: it is written after their last read.
template <class T, int Width>
__global__ void __launch_bounds__(kStreamThreads)
    residual_norm_stream_kernel(const __grid_constant__ ResidualNormParams params) {
  __shared__ float scratch[2][32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const auto for_each_piece = [&](auto&& visit) {
    for (int64_t j = threadIdx.x * Width; j < dim; j += int64_t{blockDim.x} * Width) {
      Terms<T, Width> terms;
      terms.load(params, row, j);
      float s[Width];
      terms.add(params, s);
      visit(j, s);
    }
  };
  float sum = 0;
  for_each_piece([&](int64_t, const float(&s)[Width]) {
    for (const float v : s) sum += v;
  });
  const float mean = row_sum(sum, scratch[0]) / static_cast<float>(dim);
  float squares = 0;
  for_each_piece([&](int64_t, const float(&s)[Width]) {
    for (const float v : s) squares += (v - mean) * (v - mean);
  });
  const float variance = row_sum(squares, scratch[1]) / static_cast<float>(dim);
  const float rstd = 1 / sqrtf(variance + static_cast<float>(params.eps));
  for_each_piece([&](int64_t j, const float(&s)[Width]) {
    const int64_t at = row * dim + j;
    Piece<T, Width> residual;
    if (params.residual)
      residual = load_once<T, Width>(params.residual, row * params.residual_stride + j);
    if (params.sum) store(params.sum, at, Piece<T, Width>::of(s));
    float n[Width];
    for (int k = 0; k < Width; ++k) n[k] = (s[k] - mean) * rstd;
    write_norms(params, at, n, load_or<T, Width>(params.weight, j, 1),
                load_or<T, Width>(params.bias, j, 0), residual,
                load_or<T, Width>(params.weight2, j, 1), load_or<T, Width>(params.bias2, j, 0));
  });
  write_statistics(params, row, mean, rstd);
}

template <class T, int Width>
void launch(const ResidualNormParams& params, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(params.rows);
  if (params.dim > kMaxThreads<kManyItems> * kManyItems) {
    residual_norm_stream_kernel<T, Width><<<rows, kStreamThreads, 0, stream>>>(params);
    return;
  }
  const bool few = params.dim <= kMaxThreads<kFewItems> * kFewItems;
  const unsigned threads = divide_up(divide_up(params.dim, few ? kFewItems : kManyItems), 32) * 32;
  const unsigned together = threads == 32 ? 4 : 1;  // rows per block
  const auto kernel =
      few ? residual_norm_kernel<T, Width, kFewItems> : residual_norm_kernel<T, Width, kManyItems>;
  kernel<<<divide_up(rows, together), dim3(threads, together), 0, stream>>>(params);
}

}  // namespace
}  // namespace cuda

cudaError_t residual_norm_forward_cuda(const ResidualNormParams& params, DType dtype,
                                       cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return cuda::dispatch(
      dtype,
      {params.x, params.a, params.b, params.sum, params.weight, params.bias, params.residual,
       params.y, params.weight2, params.bias2, params.y2},
      {params.dim, params.x_stride, params.a_stride, params.b_stride, params.residual_stride},
      [&]<class T, int Width>() { cuda::launch<T, Width>(params, stream); });
}

}  // namespace seqfuse::ops
