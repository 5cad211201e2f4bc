#include "ops/kernels/norm/column_sums.h"

#include <algorithm>

#include "ops/kernels/common/add_parts.cuh"

namespace seqfuse::ops {
namespace {

constexpr int kLanes = 32;  // adjacent threads in a row
constexpr int kRows = 8;    // rows that a block reads at once
constexpr int kAhead = 4;   // loads in flight per thread

// Sums every gridDim.y-th group of rows into workspace[blockIdx.y].
template <class T, int Width>
__global__ void __launch_bounds__(kLanes* kRows) part_sums_kernel(ColumnSumsParams params) {
  __shared__ float totals[kRows][kLanes * Width + 1];
  const int64_t column = (int64_t{blockIdx.x} * kLanes + threadIdx.x) * Width;
  const T* x = static_cast<const T*>(params.x);
  float sums[Width] = {};
  const auto add = [&](const cuda::Pack<T, Width>& pack) {
#pragma unroll
    for (int k = 0; k < Width; ++k) sums[k] += cuda::to_float(pack.v[k]);
  };
  const auto load = [&](int64_t row) {
    return cuda::load<Width>(x + row * params.x_stride, column, params.columns);
  };
  const int64_t step = int64_t{gridDim.y} * kRows;
  int64_t row = int64_t{blockIdx.y} * kRows + threadIdx.y;
  if (column < params.columns) {
    for (; row + (kAhead - 1) * step < params.rows; row += kAhead * step) {
      cuda::Pack<T, Width> packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) packs[a] = load(row + a * step);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) add(packs[a]);
    }
    for (; row < params.rows; row += step) add(load(row));
  }
#pragma unroll
  for (int k = 0; k < Width; ++k) totals[threadIdx.y][threadIdx.x * Width + k] = sums[k];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * kLanes + threadIdx.x);
  if (thread >= kLanes * Width) return;
  const int64_t own = int64_t{blockIdx.x} * kLanes * Width + thread;
  if (own >= params.columns) return;
  float sum = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum += totals[r][thread];
  params.workspace[int64_t{blockIdx.y} * params.columns + own] = sum;
}

}  // namespace

int64_t column_sums_parts(int64_t rows, int64_t columns) {
  // As many blocks as can run at once, unless there are fewer rows, with the widest loads.
  constexpr int64_t kBlocks = 4, kMostColumns = kLanes * 8;
  const int64_t across = cuda::divide_up(columns, kMostColumns);
  const int64_t wanted = cuda::divide_up(cuda::multiprocessors() * kBlocks, across);
  return std::clamp<int64_t>(rows / (kRows * kAhead), 1, wanted);
}

cudaError_t column_sums_cuda(const ColumnSumsParams& params, DType dtype, cudaStream_t stream) {
  const int64_t parts = column_sums_parts(params.rows, params.columns);
  const dim3 block(kLanes, kRows);
  return cuda::dispatch(dtype, {params.x}, {params.x_stride, params.columns},
                        [&]<class T, int Width>() {
                          const dim3 grid(cuda::divide_up(params.columns, kLanes * Width),
                                          static_cast<unsigned>(parts));
                          part_sums_kernel<T, Width><<<grid, block, 0, stream>>>(params);
                          cuda::add_parts<float>(params.workspace, parts, params.columns,
                                                 params.sums, nullptr, stream);
                        });
}

}  // namespace seqfuse::ops
