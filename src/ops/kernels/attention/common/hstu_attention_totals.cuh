// Adds the rows of sums over tokens that the backward pass wrote.
#pragma once

#include <array>

#include "ops/kernels/attention/common/hstu_attention_prepare.cuh"
#include "ops/kernels/attention/sm80/tile.cuh"

namespace seqfuse::ops {

// rows: [3, kTotals, width]; totals: [width] each, of dq, dk and dv.
__global__ void __launch_bounds__(kElementThreads)
    add_totals_kernel(const float* rows, int width,
                      const __grid_constant__ std::array<float*, 3> totals) {
  const int column = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (column >= width) return;
  rows += int64_t{blockIdx.y} * sm80::kTotals * width + column;
  float sum = 0;
#pragma unroll
  for (int row = 0; row < sm80::kTotals; ++row) sum += rows[row * width];
  totals[blockIdx.y][column] = sum;
}

}  // namespace seqfuse::ops
