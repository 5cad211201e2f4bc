// The list of tiles that the blocks of attention kernels take one by one. A preceding kernel writes
// it, so the host need not know how many tiles there are.
#pragma once

#include "ops/kernels/attention/common/mask.h"

namespace seqfuse::ops::attention {

// A tile and its sequence.
struct alignas(16) WorkItem {
  int tile;      // -1: no more work
  int sequence;  // index in the batch
  int q_begin, queries, k_begin, keys;
  int contexts, targets;
};

SEQFUSE_HOST_DEVICE constexpr RowMask row_mask(const MaskOptions& o, const WorkItem& item, int i) {
  return row_mask(o, MaskedSequence{item.keys, item.contexts, item.targets}, i);
}

struct alignas(16) WorkList {
  int count;       // tiles in the list; each is one piece of work per head
  int taken;       // pieces taken after each block's first
  int padding[2];  // keeps records 16-byte aligned
  SEQFUSE_HOST_DEVICE WorkItem* items() { return reinterpret_cast<WorkItem*>(this + 1); }
};

SEQFUSE_HOST_DEVICE constexpr int64_t work_list_bytes(int64_t rows, int64_t batch,
                                                      int64_t tile_rows) {
  const int64_t bytes = sizeof(WorkList) + (rows / tile_rows + batch) * sizeof(WorkItem);
  return (bytes + 255) / 256 * 256;
}

// Element i of q_offsets or k_offsets, int32 or int64.
SEQFUSE_HOST_DEVICE int64_t offset_at(const void* offsets, bool int32, int64_t b) {
  return int32 ? static_cast<const int32_t*>(offsets)[b] : static_cast<const int64_t*>(offsets)[b];
}

// Sequence b's first entry in tile tables, which reserve one partial tile per sequence.
SEQFUSE_HOST_DEVICE constexpr int64_t tile_base(int64_t q_begin, int64_t b, int tile_rows) {
  return q_begin / tile_rows + b;
}

}  // namespace seqfuse::ops::attention
