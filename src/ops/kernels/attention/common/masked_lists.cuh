// The lists of blocks that the kernels of attention under a mask walk.
#pragma once

#include "ops/kernels/attention/common/masked_arguments.h"

namespace seqfuse::ops::attention {

// One list of blocks: a block of queries with its keys, or, transposed, a block of keys.
struct BlockList {
  const int* begin;  // first entry of each list
  const int* index;  // the block on the other side
  const int* bitmap;
  const uint64_t* seen;  // of the rows that are loaded for an entry

  static __device__ __forceinline__ BlockList of_queries(const BlockMaskView& m) {
    return {m.row_begin, m.column, m.bitmap, m.seen};
  }
  static __device__ __forceinline__ BlockList of_keys(const BlockMaskView& m) {
    return {m.column_begin, m.row, m.column_bitmap, m.seen + 1};
  }
};

// Which list and head a thread block has. Lists with the most blocks come first, each for all the
// sequences that share it and all heads.
struct MaskedPiece {
  int list, block, sequence, head;

  __device__ __forceinline__ MaskedPiece(const BlockMaskView& mask, const int* order,
                                         int64_t blocks, int batch, int heads) {
    const bool shared = mask.batch == 1;
    const int each = shared ? batch * heads : heads;
    const int i = blockIdx.x % each;
    list = order[blockIdx.x / each];
    head = i % heads;
    block = shared ? list : static_cast<int>(list % blocks);
    sequence = shared ? i / heads : static_cast<int>(list / blocks);
  }
};

// An entry of a list. Its fields depend on each other's loads, so they are fetched one step before
// they are needed.
struct BlockEntry {
  int index, bitmap;
  uint64_t seen;

  __device__ __forceinline__ void fetch_number(const BlockList& list, int entry) {
    index = list.index[entry];
    bitmap = list.bitmap[entry];
  }
  __device__ __forceinline__ void fetch_seen(const BlockList& list) {
    seen = bitmap < 0 ? ~uint64_t{0} : list.seen[2 * static_cast<int64_t>(bitmap)];
  }
  __device__ __forceinline__ bool full() const { return bitmap < 0; }
};

// The bits of the rows that exist of a block.
__device__ __forceinline__ uint64_t bits_of(const masks::BlockTokens& tokens) {
  return tokens.count >= kMaskBlock ? ~uint64_t{0} : (uint64_t{1} << tokens.count) - 1;
}

}  // namespace seqfuse::ops::attention
