// A mask as blocks of 64 queries and 64 keys, as kernels read it. Plain data for host and device.
//
// Block row r = sequence * query_blocks + block of queries lists its blocks that are not empty in
// order of their keys: entries [row_begin[r], row_begin[r + 1]) of `column`. A block is full, or has
// a bitmap. A full block has 64 keys, and each of its queries sees them all; blocks at the end of
// keys that are no multiple of 64 have bitmaps, so no kernel compares with the number of keys.
//
// The transposed lists, by sequence * key_blocks + block of keys, are for gradients of keys.
#pragma once

#include "base/fixed_width.h"

namespace seqfuse::masks {

struct BlockMaskView {
  int64_t batch = 1;  // 1: one mask for all sequences
  int64_t queries = 0, keys = 0;
  int64_t query_blocks = 0, key_blocks = 0;

  const int32_t* row_begin = nullptr;  // [batch * query_blocks + 1]
  const int32_t* column = nullptr;     // [entries] block of keys
  const int32_t* bitmap = nullptr;     // [entries] -1: full; else the number of its bitmap
  const int32_t* row_order = nullptr;  // [batch * query_blocks] the block rows, longest first

  const int32_t* column_begin = nullptr;   // [batch * key_blocks + 1]
  const int32_t* row = nullptr;            // [entries] block of queries
  const int32_t* column_bitmap = nullptr;  // [entries] as bitmap
  const int32_t* column_order = nullptr;   // [batch * key_blocks] longest first

  // [bitmaps, 64]: bit k of word q: query q of the block sees key k.
  const uint64_t* bits = nullptr;
  // [bitmaps, 2]: bit k of the first: some query of the block sees key k; bit q of the second:
  // query q sees some key.
  const uint64_t* seen = nullptr;

  constexpr int64_t sequence(int64_t b) const { return batch == 1 ? 0 : b; }
};

}  // namespace seqfuse::masks
