// kv_cache::Rule for kernels: the cached tokens that a new token sees.
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
};

// The slots that a token sees, its own included, without a division for each.
class StepSight {
 public:
  SEQFUSE_HOST_DEVICE constexpr StepSight(const StepRule& rule, int64_t t)
      : start_(static_cast<int>(rule.start)),
        ring_(static_cast<int>(rule.recent + rule.prune_every)),
        last_first_(static_cast<int>(t < rule.start ? t : rule.start - 1)),
        newest_(static_cast<int>(rule.slot(t))),
        back_(static_cast<int>(rule.position(t) - rule.start)) {}

  SEQFUSE_HOST_DEVICE constexpr bool sees(int slot) const {
    if (slot < start_) return slot <= last_first_;
    const int back = newest_ - slot;  // tokens since the slot was written; modulo the ring
    return (back < 0 ? back + ring_ : back) <= back_;
  }

 private:
  int start_, ring_, last_first_, newest_, back_;
};

}  // namespace seqfuse::ops
