// Adds the rows that bias_gradient_kernel wrote, in order.
#pragma once

#include "ops/kernels/attention/common/arguments.h"
#include "ops/kernels/attention/common/sequences.cuh"

namespace seqfuse::ops::attention {

struct BiasSums {
  const float* rows;  // [tiles of keys][row]: max_seqlen + kBiasGradientKeys diagonals, buckets
  int row, max_seqlen;
  float scale;        // factor of the sums
  float* d_position;  // [2 reach + 1]; null: none
  int reach;
  float* d_time;  // [buckets]; null: none
  int buckets;
};

constexpr int kSumColumns = 32, kSumParts = 32;

// A column of the block per weight, positions first; the rows are split over its parts.
__global__ void __launch_bounds__(kSumColumns* kSumParts)
    bias_sums_kernel(ListArguments a, BiasSums s) {
  __shared__ float parts[kSumParts][kSumColumns + 1];
  const int column = threadIdx.x % kSumColumns, part = threadIdx.x / kSumColumns;
  const int positions = s.d_position ? 2 * s.reach + 1 : 0;
  const int weight = blockIdx.x * kSumColumns + column, bucket = weight - positions;
  // Buckets beyond the last weight count as the last; weights beyond the last bucket get 0.
  const int bucket_end = bucket == s.buckets - 1 ? kBuckets : min(bucket + 1, kBuckets);
  float total = 0;
  for (int b = part; b < a.batch; b += kSumParts) {
    const WorkItem item = item_of(a, b);
    const float* row = s.rows + tile_base(item.k_begin, b, a.tile_rows) * s.row;
    for (int n0 = 0; n0 < item.keys; n0 += a.tile_rows, row += s.row) {
      if (bucket < 0) {
        // The last query is at distance 0 from its own key.
        const int at = weight - s.reach + item.keys - 1 - n0;
        if (at >= 0 && at < item.queries + a.tile_rows - 1) total += row[at];
      } else if (bucket < s.buckets) {
        for (int e = bucket; e < bucket_end; ++e) total += row[s.max_seqlen + a.tile_rows + e];
      }
    }
  }
  parts[part][column] = total;
  __syncthreads();
  if (part != 0) return;
  total = 0;
  for (int p = 0; p < kSumParts; ++p) total += parts[p][column];
  total *= s.scale;
  if (bucket < 0) {
    s.d_position[weight] = total;
  } else if (bucket < s.buckets) {
    s.d_time[bucket] = total;
  }
}

}  // namespace seqfuse::ops::attention
