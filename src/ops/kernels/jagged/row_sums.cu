// Two algorithms. Atomic: a warp takes a position, keeps its row in registers and adds it,
// weighted, to the sum of each of its ids; neighbouring lanes add to neighbouring columns, on
// compute capability 9 two or four per instruction. Sorted: terms are sorted by id; a warp, or
// eight for ids with many terms, adds one id's terms in a fixed order.
#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/jagged/row_sums.h"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kAtomicWarps = 4, kSortedWarps = 8;
constexpr int kSortedItems = 4;  // columns per lane
constexpr unsigned kAll = 0xFFFFFFFF;

template <int Width>
__device__ void atomic_add(float* to, const float (&v)[Width]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (Width == 4) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
  } else if constexpr (Width == 2) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
                 :
                 : "l"(to), "f"(v[0]), "f"(v[1])
                 : "memory");
  } else {
    atomicAdd(to, v[0]);
  }
#else
#pragma unroll
  for (int k = 0; k < Width; ++k) atomicAdd(to + k, v[k]);
#endif
}

// blockIdx.y: a range of 32 Width columns. Width divides dim.
template <class T, int Width>
__global__ void __launch_bounds__(32 * kAtomicWarps) atomic_kernel(RowSumCudaParams params) {
  const RowSumParams& terms = params.terms;
  const int64_t t = int64_t{blockIdx.x} * kAtomicWarps + threadIdx.x / 32;
  if (t >= terms.positions) return;
  const int lane = threadIdx.x % 32;
  const int64_t column = (int64_t{blockIdx.y} * 32 + lane) * Width, dim = terms.dim;
  const bool inside = column < dim;
  const auto pack = load<Width>(static_cast<const T*>(terms.rows) + t * dim, column, dim);
  const auto* weights = static_cast<const float*>(terms.weights);

  for (int64_t first = 0; first < terms.columns; first += 32) {
    const int64_t c = first + lane;
    int64_t id = 0;
    float weight = 1;
    if (c < terms.columns) {
      id = c == 0 ? terms.ids[t] : terms.more_ids[t * (terms.columns - 1) + c - 1];
      if (weights) weight = weights[t * terms.columns + c];
    }
    const int count = static_cast<int>(min(terms.columns - first, int64_t{32}));
    for (int i = 0; i < count; ++i) {
      float* to = params.sums + __shfl_sync(kAll, id, i) * dim + column;
      const float w = __shfl_sync(kAll, weight, i);
      float v[Width];
#pragma unroll
      for (int k = 0; k < Width; ++k) v[k] = w * to_float(pack.v[k]);
      if (inside) atomic_add(to, v);
    }
  }
}

// The first index in sorted [count] with a value of at least id.
__device__ int64_t first_not_below(const int32_t* sorted, int64_t count, int64_t id) {
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Warps: how many share the terms of an id, 32 terms in turn. blockIdx.y: a range of 128 columns.
template <class T, int Warps>
__global__ void __launch_bounds__(32 * kSortedWarps) sorted_kernel(RowSumCudaParams params) {
  __shared__ float shared[kSortedWarps][32 * kSortedItems];
  const RowSumParams& terms = params.terms;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % Warps;
  const int64_t id = int64_t{blockIdx.x} * (kSortedWarps / Warps) + warp / Warps;
  if (id >= terms.num_rows) return;  // the whole warp, or the whole block if warps share an id
  const int64_t dim = terms.dim, count = terms.positions * terms.columns;
  const int64_t first_column = int64_t{blockIdx.y} * 32 * kSortedItems + lane;
  const auto* weights = static_cast<const float*>(terms.weights);
  const int64_t begin = first_not_below(params.sorted_ids, count, id);
  const int64_t end = first_not_below(params.sorted_ids, count, id + 1);

  float sums[kSortedItems] = {};
  for (int64_t first = begin + part * 32; first < end; first += Warps * 32) {
    int64_t position = 0;
    float weight = 0;
    if (first + lane < end) {
      const int64_t term = params.order[first + lane];
      position = term / terms.columns;
      weight = weights ? weights[term] : 1;
    }
    const int in_turn = static_cast<int>(min(end - first, int64_t{32}));
#pragma unroll 4
    for (int i = 0; i < in_turn; ++i) {
      const T* row = static_cast<const T*>(terms.rows) + __shfl_sync(kAll, position, i) * dim;
      const float w = __shfl_sync(kAll, weight, i);
#pragma unroll
      for (int r = 0; r < kSortedItems; ++r) {
        const int64_t column = first_column + 32 * r;
        if (column < dim) sums[r] += w * to_float(row[column]);
      }
    }
  }
  if constexpr (Warps > 1) {
#pragma unroll
    for (int r = 0; r < kSortedItems; ++r) shared[warp][lane + 32 * r] = sums[r];
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (int r = 0; r < kSortedItems; ++r) {
      for (int w = 1; w < Warps; ++w) sums[r] += shared[warp + w][lane + 32 * r];
    }
  }
#pragma unroll
  for (int r = 0; r < kSortedItems; ++r) {
    const int64_t column = first_column + 32 * r;
    if (column < dim) params.sums[id * dim + column] = sums[r];
  }
}

// Columns that a lane adds per instruction: as many as still let a row fill a warp.
int atomic_width(const RowSumCudaParams& params, DType dtype) {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (major < 9) return 1;
  for (const int width : {4, 2}) {
    if (params.terms.dim > 32 * width / 2 && params.terms.dim % width == 0 &&
        all_aligned({params.sums}, 4 * width) &&
        all_aligned({params.terms.rows}, width * size_of(dtype)))
      return width;
  }
  return 1;
}

}  // namespace

cudaError_t row_sums_cuda(const RowSumCudaParams& params, DType dtype, cudaStream_t stream) {
  const RowSumParams& terms = params.terms;
  if (params.order) {
    if (terms.num_rows == 0) return cudaSuccess;
    const bool many = terms.positions * terms.columns > 32 * terms.num_rows;
    const dim3 grid(divide_up(terms.num_rows, many ? 1 : kSortedWarps),
                    divide_up(terms.dim, 32 * kSortedItems));
    return dispatch_type(dtype, [&]<class T>() {
      const auto kernel = many ? sorted_kernel<T, kSortedWarps> : sorted_kernel<T, 1>;
      kernel<<<grid, 32 * kSortedWarps, 0, stream>>>(params);
    });
  }
  if (terms.positions == 0) return cudaSuccess;
  const int width = atomic_width(params, dtype);
  const dim3 grid(divide_up(terms.positions, kAtomicWarps), divide_up(terms.dim, 32 * width));
  return dispatch_type(dtype, [&]<class T>() {
    const auto kernel = width == 4   ? atomic_kernel<T, 4>
                        : width == 2 ? atomic_kernel<T, 2>
                                     : atomic_kernel<T, 1>;
    kernel<<<grid, 32 * kAtomicWarps, 0, stream>>>(params);
  });
}

}  // namespace seqfuse::ops
