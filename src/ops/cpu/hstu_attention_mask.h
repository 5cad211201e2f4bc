// The HSTU mask of one sequence as intervals of keys: row i sees [lo, hi) and [group_lo, group_hi).
// Exactly the closed form of ops/kernels/attention/hstu_attention.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::ops::cpu {

// Positions among the keys of one sequence. The first interval holds contexts and history, the
// second a target's own group; either may be empty (lo >= hi).
struct RowMask {
  int32_t lo = 0, hi = 0;
  int32_t group_lo = 0, group_hi = 0;

  bool contains(int64_t j) const { return (j >= lo && j < hi) || (j >= group_lo && j < group_hi); }
};

class SequenceMask {
 public:
  // The mask of sequence b of length keys.
  SequenceMask(const HstuAttentionParams& p, int64_t b, int64_t keys)
      : keys_(keys),
        contexts_(p.num_contexts ? p.num_contexts[b] : 0),
        history_end_(keys - (p.num_targets ? p.num_targets[b] : 0)),
        group_size_(p.target_group_size),
        window_(p.max_attn_len),
        full_rows_(p.min_full_attn_seq_len),
        causal_(p.causal) {}

  // Row of the query at position i, 0 <= i < keys.
  RowMask row(int64_t i) const {
    const bool windowed = window_ > 0 && !(full_rows_ > 0 && i >= history_end_ - full_rows_);
    if (i < contexts_) return make(0, context_row_end(), 0, 0);
    // The oldest key in the window is i - w, but contexts share one position, the one before i = c.
    int64_t lo = windowed ? std::max<int64_t>(0, i - window_) : 0;
    if (lo < contexts_) lo = 0;
    int64_t hi = causal_ ? i + 1 : windowed ? i + window_ + 1 : keys_;
    hi = std::min(hi, keys_);
    if (i < history_end_) return make(lo, hi, 0, 0);
    const int64_t group = history_end_ + (i - history_end_) / group_size_ * group_size_;
    return make(lo, std::min(hi, history_end_), std::max(lo, group),
                std::min(hi, group + group_size_));
  }

 private:
  static RowMask make(int64_t lo, int64_t hi, int64_t group_lo, int64_t group_hi) {
    return {static_cast<int32_t>(lo), static_cast<int32_t>(hi), static_cast<int32_t>(group_lo),
            static_cast<int32_t>(group_hi)};
  }

  int64_t context_row_end() const {
    if (causal_) return history_end_;
    const bool windowed =
        window_ > 0 && !(full_rows_ > 0 && history_end_ - contexts_ + 1 <= full_rows_);
    const int64_t reach = windowed ? std::min(keys_, contexts_ + window_) : keys_;
    return std::max(history_end_, reach);
  }

  int64_t keys_, contexts_, history_end_, group_size_, window_, full_rows_;
  bool causal_;
};

}  // namespace seqfuse::ops::cpu
