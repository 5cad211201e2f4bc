// Which cached tokens a new token sees: kv_cache::Rule, for kernels.
#pragma once

#include <cstdint>

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops {

struct StepRule {
  int64_t start = 0, recent = 0, prune_every = 1;  // slots = start + recent + prune_every
  bool true_distances = false;

  // Position of token t in the cache: the number of tokens that it sees before itself.
  SEQFUSE_HOST_DEVICE constexpr int64_t position(int64_t t) const {
    const int64_t kept = start + recent;
    return t < kept ? t : (t - kept) % prune_every + kept;
  }
  SEQFUSE_HOST_DEVICE constexpr int64_t slot(int64_t t) const {
    return t < start ? t : (t - start) % (recent + prune_every) + start;
  }
  // Whether token t sees what slot j holds, t's own slot included.
  SEQFUSE_HOST_DEVICE constexpr bool sees(int64_t t, int64_t j) const {
    if (j < start) return j <= t;
    const int64_t ring = recent + prune_every;
    const int64_t back = ((t - j) % ring + ring) % ring;  // tokens since the slot was written
    return back <= position(t) - start && back <= t - start;
  }
};

}  // namespace seqfuse::ops
