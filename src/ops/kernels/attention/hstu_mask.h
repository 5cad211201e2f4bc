// The mask of HSTU attention: one struct from the torch binding to the kernels. A new parameter of
// the mask is a field here, a line in kernel_mask and its rule in common/mask.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/attention/common/mask.h"

namespace seqfuse::ops {

// The rules are in hstu_attention.h.
struct HstuMask {
  bool causal = true;
  int64_t target_group_size = 1;      // g >= 1
  int64_t max_attn_len = 0;           // w, 0: no window
  int64_t min_full_attn_seq_len = 0;  // F
};

// The mask as kernels take it. Lengths are capped at 2^30, more than any sequence has.
inline attention::MaskOptions kernel_mask(const HstuMask& mask) {
  const auto capped = [](int64_t value) {
    return static_cast<int>(std::min<int64_t>(value, 1 << 30));
  };
  return {.group_size = capped(mask.target_group_size),
          .max_attn_len = capped(mask.max_attn_len),
          .full_rows = capped(mask.min_full_attn_seq_len),
          .causal = mask.causal};
}

}  // namespace seqfuse::ops
