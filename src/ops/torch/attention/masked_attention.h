// Softmax attention under any mask, as differentiable functions of tensors; also registered as
// torch.ops.seqfuse.*. Errors (c10::Error) say what was given and what was expected.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "masks/block_mask.h"
#include "masks/block_mask_view.h"

namespace seqfuse::ops {

using at::Tensor;

// A mask's block structure as tensors: the ten lists of BlockMaskView, on one device: row_begin,
// column, bitmap, row_order, column_begin, row, column_bitmap, column_order, bits [bitmaps, 64], seen
// [bitmaps, 2]; bits and seen are int64, all others int32.
struct BlockMaskTensors {
  std::vector<Tensor> lists;
  int64_t batch = 1, queries = 0, keys = 0, step = 1;
  masks::Plain plain = masks::Plain::none;
  int64_t allowed = 0;  // pairs, over the mask's sequences

  // As the operators take them.
  std::vector<int64_t> sizes() const {
    return {batch, queries, keys, step, static_cast<int64_t>(plain), allowed};
  }
};

// On the CPU, not copied: the tensors keep the mask.
BlockMaskTensors block_mask_tensors(masks::BlockMask mask);

// Checks the lists and sizes of BlockMaskTensors for operator `op`: throws unless they fit together and are
// on that device. The lists' values are trusted.
void check_block_mask(const char* op, at::TensorList lists, at::IntArrayRef sizes,
                      at::Device device);
// The view that kernels read; the lists must outlive it and have passed check_block_mask().
masks::BlockMaskView block_mask_view(at::TensorList lists, at::IntArrayRef sizes);

// q [B, H, queries, d], k, v [B, G, keys, d] with any strides; H is a multiple of G, whose heads are
// each read by H / G heads of q. The mask has these queries and keys, and 1 or B sequences. Returns
// the output [B, H, queries, d] and the log-sum-exp [B, H, queries] (kernels/masked_attention.h),
// both differentiable. float32 and float64 on the CPU; float16 and bfloat16 on CUDA, where head_dim
// is a multiple of 8 up to 128, scale is positive, and the log-sum-exp is float32.
std::tuple<Tensor, Tensor> masked_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const BlockMaskTensors& mask, double scale);

}  // namespace seqfuse::ops
