// Buckets of time, each with a weight in the relative bias:
//   bucket(x) = floor(ln(max(|x|, 1)) / 0.301), evaluated in float64.
//
// A cell is a quarter of an octave. Cells are narrower than buckets, so each contains at most one
// bucket edge: one lookup and one comparison replace the logarithm. A cell's number is the exponent
// of a double and the first two bits of its mantissa.
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>
#endif

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::attention {

constexpr int kBuckets = 148;  // int64 differences reach 2^64: bucket 147
constexpr double kBucketWidth = 0.301;
constexpr int kTimeCells = 4 * 64;
constexpr int kTimeCellShift = 18;                            // in the high word of a double
constexpr int kFirstTimeCell = 0x3ff00000 >> kTimeCellShift;  // the cell of 1.0

// The definition, for x >= 1.
SEQFUSE_HOST_DEVICE int time_bucket(double x) {
  return static_cast<int>(floor(log(x) / kBucketWidth));
}

// edge[b]: the smallest whole number in bucket b or above, in float64 arithmetic.
struct TimeEdges {
  uint64_t edge[kBuckets + 1];
};

struct TimeCell {
  uint32_t edge_high;  // high word of the double at which the cell's second bucket starts
  int first;           // bucket of the cell's start
};

// Lookup tables for a GPU, rebuilt for each launch.
struct TimeTables {
  TimeCell cells[kTimeCells];
  uint32_t edge_low[kTimeCells];
  float weights[kBuckets + 1];

#ifdef __CUDACC__
  // The bucket of a whole number.
  __device__ __forceinline__ int bucket(double difference) const {
    const auto high = static_cast<uint32_t>(__double2hiint(difference)) & 0x7fffffffu;
    const int cell =
        most(static_cast<int>(high >> kTimeCellShift), kFirstTimeCell) - kFirstTimeCell;
    const TimeCell c = cells[cell];
    bool second = high >= c.edge_high;
    if (high == c.edge_high)
      second = static_cast<uint32_t>(__double2loint(difference)) >= edge_low[cell];
    return c.first + (second ? 1 : 0);
  }
#endif
};

}  // namespace seqfuse::ops::attention
