// The options of the mask as kernels take them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/attention/common/mask.h"

namespace seqfuse::ops {

// From parameters that have causal, target_group_size, max_attn_len and min_full_attn_seq_len.
// Numbers beyond the longest sequence are as good as that.
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
