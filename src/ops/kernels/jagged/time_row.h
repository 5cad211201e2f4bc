// The row of a table of times for an event, the same on the CPU and on a GPU.
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>
#endif

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops {

// min(floor(sqrt(age / unit)), rows - 1); the age is from t to the request, 0 if t is later.
SEQFUSE_HOST_DEVICE int64_t time_row(int64_t request, int64_t t, double unit, int64_t rows) {
  // Unsigned: the difference of two int64 may not fit an int64.
  const uint64_t age = t < request ? static_cast<uint64_t>(request) - static_cast<uint64_t>(t) : 0;
  const double bucket = floor(sqrt(static_cast<double>(age) / unit));
  return static_cast<int64_t>(fmin(bucket, static_cast<double>(rows - 1)));
}

}  // namespace seqfuse::ops
