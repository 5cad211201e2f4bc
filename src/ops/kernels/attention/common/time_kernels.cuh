// Builds the tables of times and of time buckets for each launch.
#pragma once

#include "ops/kernels/attention/common/list_kernels.cuh"
#include "ops/kernels/attention/common/time_buckets.h"

namespace seqfuse::ops::attention {

__global__ void __launch_bounds__(kTimeCells)
    time_tables_kernel(const __grid_constant__ TimeEdges edges, const float* weights, int buckets,
                       TimeTables* tables) {
  const int c = threadIdx.x;
  // The first whole number in the cell; small cells may contain none and are never looked up.
  const auto first =
      static_cast<uint64_t>(ceil(__hiloint2double((c << kTimeCellShift) + 0x3ff00000, 0)));
  const int bucket = first_place(0, kBuckets - 1, [&](int b) { return edges.edge[b + 1] > first; });
  const double edge = __ull2double_rn(edges.edge[bucket + 1]);
  tables->cells[c] = {static_cast<uint32_t>(__double2hiint(edge)), bucket};
  tables->edge_low[c] = static_cast<uint32_t>(__double2loint(edge));
  if (c <= kBuckets) tables->weights[c] = weights[min(c, buckets - 1)];
}

// Times relative to each sequence's first event. One grid row per sequence.
__global__ void __launch_bounds__(kElementThreads)
    times_kernel(ListArguments a, const int64_t* timestamps, const int64_t* request_times,
                 double* times, double* times_after) {
  const WorkItem item = checked_item_of(a, static_cast<int>(blockIdx.y), "times of keys");
  const int j = static_cast<int>(blockIdx.x * kElementThreads + threadIdx.x);
  if (j >= item.keys) return;
  const int64_t* t = timestamps + item.k_begin;
  const int64_t after = j + 1 < item.keys ? t[j + 1]
                        : request_times   ? request_times[item.sequence]
                                          : t[j];
  times[item.k_begin + j] = static_cast<double>(t[j] - t[0]);
  times_after[item.k_begin + j] = static_cast<double>(after - t[0]);
}

}  // namespace seqfuse::ops::attention
