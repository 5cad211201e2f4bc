// Buckets of time, of which relative biases have a weight each:
//   bucket(x) = floor(ln(max(|x|, 1)) / 0.301), evaluated in float64.
//
// A cell holds the differences within a quarter of an octave. It is narrower than a bucket, so that
// it has the edge of one bucket at most: a lookup and a comparison give what the logarithm gives.
// Cells are numbered by the exponent of a double and the first two bits of its mantissa.
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>
#endif

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::attention {

constexpr int kBuckets = 148;  // differences of 64 bits reach 2^64: bucket 147
constexpr double kBucketWidth = 0.301;
constexpr int kTimeCells = 4 * 64;
constexpr int kTimeCellShift = 18;                            // of the high word of a double
constexpr int kFirstTimeCell = 0x3ff00000 >> kTimeCellShift;  // that of 1.0

// The definition, for x >= 1.
SEQFUSE_HOST_DEVICE int time_bucket(double x) {
  return static_cast<int>(floor(log(x) / kBucketWidth));
}

// The smallest whole number of each bucket and above, as float64 arithmetic gives it.
struct TimeEdges {
  uint64_t edge[kBuckets + 1];
};

struct TimeCell {
  uint32_t edge_high;  // of the second bucket's smallest difference, the high word of its double
  int first;           // bucket
};

// What lookups on a GPU need, made anew for each launch.
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
