// Arguments of the kernels of softmax attention under a mask, the same for all architectures.
#pragma once

#include "masks/block_mask_view.h"
#include "ops/kernels/common/heads_view.h"

namespace seqfuse::ops::attention {

using masks::BlockMaskView;

constexpr int kMaskBlock = 64;  // queries and keys of a block

// A tensor [batch, heads, rows, head_dim], rows aligned to 16 bytes.
struct BatchView {
  char* data;
  int64_t batch_bytes, head_bytes, row_bytes;

  SEQFUSE_HOST_DEVICE HeadsView of(int64_t b) const {
    return {data + b * batch_bytes, row_bytes, head_bytes, 16};
  }
};

// [batch, heads, queries]: lse, dlse, delta and shift.
struct MaskedArguments {
  BlockMaskView mask;
  BatchView q, k, v, out, dout, dq, dk, dv;
  float* lse;
  const float* dlse;  // or null
  // Of the backward pass, from masked_delta.cu.
  float* delta;
  float* shift;  // log2(e) lse; 0 where lse is -infinity
  int batch, heads, key_heads, head_dim;
  float scale;  // positive
};

}  // namespace seqfuse::ops::attention
