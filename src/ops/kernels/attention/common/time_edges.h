// The edges of time buckets, computed on the host from their definition.
#pragma once

#include <cmath>

#include "ops/kernels/attention/common/time_buckets.h"

namespace seqfuse::ops::attention {

// Finds the edges by evaluating the definition in float64.
inline const TimeEdges& time_edges() {
  static const TimeEdges edges = [] {
    TimeEdges e{};
    for (int bucket = 1; bucket <= kBuckets; ++bucket) {
      uint64_t below = 1, above = ~uint64_t{0};
      while (above - below > 1) {
        const uint64_t middle = below + (above - below) / 2;
        const bool reached = time_bucket(static_cast<double>(middle)) >= bucket;
        (reached ? above : below) = middle;
      }
      e.edge[bucket] = above;
    }
    return e;
  }();
  return edges;
}

}  // namespace seqfuse::ops::attention
