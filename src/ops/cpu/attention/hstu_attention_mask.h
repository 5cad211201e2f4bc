// The mask of one sequence of a batch, row by row.
#pragma once

#include <cstdint>

#include "ops/kernels/attention/common/mask.h"
#include "ops/kernels/attention/hstu_attention.h"

namespace seqfuse::ops::cpu {

using attention::RowMask;

class SequenceMask {
 public:
  // The mask of sequence b of length keys.
  SequenceMask(const HstuAttentionParams& p, int64_t b, int64_t keys)
      : options_(kernel_mask(p.mask)),
        sequence_{.keys = static_cast<int>(keys),
                  .contexts = static_cast<int>(p.num_contexts ? p.num_contexts[b] : 0),
                  .targets = static_cast<int>(p.num_targets ? p.num_targets[b] : 0)} {}

  // Row of the query at position i, 0 <= i < keys.
  RowMask row(int64_t i) const {
    return attention::row_mask(options_, sequence_, static_cast<int>(i));
  }

 private:
  attention::MaskOptions options_;
  attention::MaskedSequence sequence_;
};

}  // namespace seqfuse::ops::cpu
