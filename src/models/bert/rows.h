// How the tokens of a batch lie in the rows of its matrices, and which of them attend to which.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

#include "masks/mask.h"
#include "masks/sequence_mask.h"
#include "ops/torch/attention/masked_attention.h"

namespace seqfuse::models::bert {

using masks::SequenceMask;

// Row g * length + i is token i of group g; tokens of different groups never see each other.
struct Rows {
  int64_t groups = 1, length = 0;
  bool sees_all = false;                 // every token sees its whole group
  masks::Mask mask = masks::full(0, 0);  // [1 or groups, length, length]
  ops::BlockMaskTensors blocks;          // the same, on the device
  at::Tensor dense;                      // dense_mask(), made before; undefined: made when needed

  int64_t count() const { return groups * length; }
  // bool [1 or groups, 1, length, length] on that device: for the reference.
  at::Tensor dense_mask(at::Device device) const;

  // Without padding: sequences one after the other. Of equal lengths: a group each. Else one group.
  // lengths: 0 or more each. On a GPU, waits for it once.
  static Rows jagged(std::span<const int64_t> lengths, const SequenceMask& mask, at::Device device);
  // A group for each sequence, of `length` rows, of which the last ones are padding.
  static Rows padded(std::span<const int64_t> lengths, int64_t length, const SequenceMask& mask,
                     at::Device device);
};

}  // namespace seqfuse::models::bert
