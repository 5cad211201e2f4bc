// The attention mask as intervals of keys: the one closed form of the definition in
// ops/kernels/attention/hstu_attention.h, used by CPU and GPU kernels and, as a dense mask
// (dense_mask.h), by attention by matrix products.
#pragma once

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::attention {

struct MaskOptions {
  int group_size, max_attn_len, full_rows;  // g, w (0: off), F; at most 2^30
  bool causal;
};

// The sequence lengths that the mask depends on.
struct MaskedSequence {
  int keys, contexts, targets;  // contexts + targets <= keys <= 2^30
};

// A query sees the keys [lo, lo + length) and [group_lo, group_lo + group_length). The first
// interval is contexts and history, the second a target's own group; lengths may be 0.
struct RowMask {
  int lo, length;
  int group_lo, group_length;

  SEQFUSE_HOST_DEVICE constexpr bool sees(int j) const {
    return static_cast<unsigned>(j - lo) < static_cast<unsigned>(length) ||
           static_cast<unsigned>(j - group_lo) < static_cast<unsigned>(group_length);
  }
};

SEQFUSE_HOST_DEVICE constexpr RowMask make_row_mask(int lo, int hi, int group_lo, int group_hi) {
  return {lo, most(hi - lo, 0), group_lo, most(group_hi - group_lo, 0)};
}

// The keys that the query at position i of the keys sees, 0 <= i < keys.
SEQFUSE_HOST_DEVICE constexpr RowMask row_mask(const MaskOptions& o, const MaskedSequence& s,
                                               int i) {
  const int keys = s.keys, contexts = s.contexts, history_end = keys - s.targets;
  if (i < contexts) {
    if (o.causal) return {0, history_end, 0, 0};
    const bool windowed =
        o.max_attn_len > 0 && !(o.full_rows > 0 && history_end - contexts + 1 <= o.full_rows);
    const int reach = windowed ? least(keys, contexts + o.max_attn_len) : keys;
    return {0, most(history_end, reach), 0, 0};
  }
  const bool windowed = o.max_attn_len > 0 && !(o.full_rows > 0 && i >= history_end - o.full_rows);
  int lo = windowed ? most(0, i - o.max_attn_len) : 0;
  if (lo < contexts) lo = 0;  // all contexts share one position, just before the first event
  const int hi = least(o.causal ? i + 1 : windowed ? i + o.max_attn_len + 1 : keys, keys);
  if (i < history_end) return make_row_mask(lo, hi, 0, 0);
  const int group = history_end + (i - history_end) / o.group_size * o.group_size;
  return make_row_mask(lo, least(hi, history_end), most(lo, group),
                       least(hi, group + o.group_size));
}

}  // namespace seqfuse::ops::attention
