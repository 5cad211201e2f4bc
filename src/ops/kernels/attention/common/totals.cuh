// Adds up the rows of token sums that the backward pass wrote.
#pragma once

#include "ops/kernels/attention/common/arguments.h"
#include "ops/kernels/attention/common/sequences.cuh"

namespace seqfuse::ops::attention {

struct Totals {
  float* of[3];  // outputs for dq, dk and dv, [width] each
};

// rows: [3, kTotals, width].
__global__ void __launch_bounds__(kElementThreads)
    add_totals_kernel(const float* rows, int width, const __grid_constant__ Totals totals) {
  const int column = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (column >= width) return;
  rows += int64_t{blockIdx.y} * kTotals * width + column;
  float sum = 0;
#pragma unroll
  for (int row = 0; row < kTotals; ++row) sum += rows[row * width];
  totals.of[blockIdx.y][column] = sum;
}

}  // namespace seqfuse::ops::attention
