// A mask as blocks of 64 queries and 64 keys, as kernels read it. Plain data for host and device.
//
// Block row r = sequence * query_blocks + block of queries lists its blocks that are not empty in
// order of their keys: entries [row_begin[r], row_begin[r + 1]) of `column`. A block is full, or has
// a bitmap. A full block has 64 keys, and each of its queries sees them all; blocks at the end of
// keys that are no multiple of 64 have bitmaps, so no kernel compares with the number of keys.
//
// The transposed lists, by sequence * key_blocks + block of keys, are for gradients of keys.
//
// A block holds neighbouring tokens, or, if step > 1, every step-th: tokens are then ordered by
// their residue, so that a dilated window becomes `step` plain ones. A residue starts a block.
#pragma once

#include "base/fixed_width.h"

namespace seqfuse::masks {

// The tokens of a block: first, first + step, ...; count of them, at most 64, exist.
struct BlockTokens {
  int64_t first, count;
};

// Of `blocks` blocks of `tokens` tokens.
constexpr BlockTokens tokens_of_block(int64_t block, int64_t blocks, int64_t tokens, int32_t step) {
  int64_t first = block * 64;
  if (step > 1) {
    // 32 bits are enough for a block's number, and divide faster.
    const auto each = static_cast<int32_t>(blocks) / step, number = static_cast<int32_t>(block);
    first = number / each + int64_t{number % each} * 64 * step;
  }
  const int64_t left = first < tokens ? (tokens - first + step - 1) / step : 0;
  return {first, left < 64 ? left : 64};
}

constexpr int64_t count_of_blocks(int64_t tokens, int32_t step) {
  return step * (((tokens + step - 1) / step + 63) / 64);
}

struct BlockMaskView {
  int64_t batch = 1;  // 1: one mask for all sequences
  int64_t queries = 0, keys = 0;
  int64_t query_blocks = 0, key_blocks = 0;
  int32_t step = 1;

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
  constexpr BlockTokens queries_of(int64_t block) const {
    return tokens_of_block(block, query_blocks, queries, step);
  }
  constexpr BlockTokens keys_of(int64_t block) const {
    return tokens_of_block(block, key_blocks, keys, step);
  }
};

}  // namespace seqfuse::masks
