// Sums the parts that a kernel's blocks wrote, in order and without atomics.
#pragma once

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops::cuda {

constexpr int kPartColumns = 32, kPartLanes = 16;

// parts: [count, 2, dim] for sums and others [dim] each, or [count, dim] where others is null.
// Thread (x, y) adds every 16th part of one column.
template <class T>
__global__ void __launch_bounds__(kPartColumns* kPartLanes)
    add_parts_kernel(const float* parts, int64_t count, int64_t dim, T* sums, T* others) {
  __shared__ float lanes[kPartLanes][kPartColumns];
  const int64_t columns = others ? 2 * dim : dim;
  const int64_t column = int64_t{blockIdx.x} * kPartColumns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8  // keeps loads in flight
    for (int64_t p = threadIdx.y; p < count; p += kPartLanes) sum += parts[p * columns + column];
  }
  lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (int lane = 1; lane < kPartLanes; ++lane) sum += lanes[lane][threadIdx.x];
  (column < dim ? sums : others - dim)[column] = from_float<T>(sum);
}

template <class T>
void add_parts(const float* parts, int64_t count, int64_t dim, T* sums, T* others,
               cudaStream_t stream) {
  add_parts_kernel<T>
      <<<divide_up(others ? 2 * dim : dim, kPartColumns), dim3(kPartColumns, kPartLanes), 0,
         stream>>>(parts, count, dim, sums, others);
}

}  // namespace seqfuse::ops::cuda
