// Builds the block structure of a mask (block_mask_view.h): exact, and in memory that grows with
// the blocks that are not empty. No element is stored outside partial blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "masks/block_mask_view.h"
#include "masks/mask.h"

namespace seqfuse::masks {

// How much of a mask is allowed, over all its sequences.
struct MaskCounts {
  int64_t allowed = 0, elements = 0;          // pairs of a query and a key
  int64_t full = 0, partial = 0, blocks = 0;  // blocks; blocks: with the empty ones
  double density() const {
    return elements == 0 ? 0 : static_cast<double>(allowed) / static_cast<double>(elements);
  }
  // Allowed elements as a share of those that a kernel computes, which are whole blocks.
  double efficiency() const;
};

class BlockMask {
 public:
  // Threads share the block rows; the result does not depend on their number. step: of the blocks;
  // 1: blocks of neighbouring tokens, whatever the mask.
  explicit BlockMask(const Mask& mask) : BlockMask(mask, block_step(mask.rule())) {}
  BlockMask(const Mask& mask, int32_t step);

  BlockMaskView view() const;
  MaskCounts counts() const;

  int64_t batch = 1, queries = 0, keys = 0;
  int32_t step = 1;
  Plain plain = Plain::none;
  std::vector<int32_t> row_begin, column, bitmap, row_order;
  std::vector<int32_t> column_begin, row, column_bitmap, column_order;
  std::vector<uint64_t> bits, seen;
};

}  // namespace seqfuse::masks
