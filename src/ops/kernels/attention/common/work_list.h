// The list of tiles that the blocks of attention's kernels take one by one. A kernel before writes
// it, without the host knowing how many tiles there are.
#pragma once

#include "ops/kernels/attention/common/mask.h"

namespace seqfuse::ops::attention {

// A tile of a sequence, and the sequence.
struct alignas(16) WorkItem {
  int tile;      // -1: no more work
  int sequence;  // of the batch
  int q_begin, queries, k_begin, keys;
  int contexts, targets;
};

SEQFUSE_HOST_DEVICE constexpr RowMask row_mask(const MaskOptions& o, const WorkItem& item, int i) {
  return row_mask(o, MaskedSequence{item.keys, item.contexts, item.targets}, i);
}

struct alignas(16) WorkList {
  int count;       // of tiles; there is one piece of work for each tile and head
  int taken;       // pieces that were taken beyond the first of each block
  int padding[2];  // records are 16-byte aligned
  SEQFUSE_HOST_DEVICE WorkItem* items() { return reinterpret_cast<WorkItem*>(this + 1); }
};

SEQFUSE_HOST_DEVICE constexpr int64_t work_list_bytes(int64_t rows, int64_t batch,
                                                      int64_t tile_rows) {
  const int64_t bytes = sizeof(WorkList) + (rows / tile_rows + batch) * sizeof(WorkItem);
  return (bytes + 255) / 256 * 256;
}

// Of q_offsets or k_offsets, which are of either width.
SEQFUSE_HOST_DEVICE int64_t offset_at(const void* offsets, bool int32, int64_t b) {
  return int32 ? static_cast<const int32_t*>(offsets)[b] : static_cast<const int64_t*>(offsets)[b];
}

// Sequence b's first entry in tables of tiles that leave room for one part tile a sequence.
SEQFUSE_HOST_DEVICE constexpr int64_t tile_base(int64_t q_begin, int64_t b, int tile_rows) {
  return q_begin / tile_rows + b;
}

}  // namespace seqfuse::ops::attention
