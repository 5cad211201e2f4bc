// The mask options in the form that kernels take.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/attention/common/mask.h"

namespace seqfuse::ops {

// Parameters: has causal, target_group_size, max_attn_len and min_full_attn_seq_len. Values are
// clamped: anything beyond the longest sequence has the same effect.
template <class Parameters>
attention::MaskOptions kernel_mask(const Parameters& p) {
  const auto bounded = [](int64_t value) {
    return static_cast<int>(std::min<int64_t>(value, 1 << 30));
  };
  return {.group_size = bounded(p.target_group_size),
          .window = bounded(p.max_attn_len),
          .full_rows = bounded(p.min_full_attn_seq_len),
          .causal = p.causal != 0};
}

}  // namespace seqfuse::ops
