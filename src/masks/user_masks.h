// Masks from tables of the user: dense, by columns, by intervals or by blocks.
#pragma once

#include <cstdint>
#include <span>

#include "masks/mask.h"

namespace seqfuse::masks {

// allowed: [batch, queries, keys], not 0: allowed.
Mask from_dense(int64_t batch, int64_t queries, int64_t keys, std::span<const uint8_t> allowed);
// Row b * (queries + 1) + q of offsets: where the columns of a query begin; they ascend in a row.
Mask from_csr(int64_t batch, int64_t queries, int64_t keys, std::span<const int64_t> offsets,
              std::span<const int64_t> columns);
// [batch, queries, count, 2]: the intervals [begin, end) of keys that a query sees, ascending, not
// overlapping; begin = end: no interval.
Mask from_intervals(int64_t batch, int64_t queries, int64_t keys, int64_t count,
                    std::span<const int64_t> bounds);

// Blocks of 64 queries and 64 keys. Row b * (blocks of queries) + i of begin: where the entries of a
// block of queries begin. columns [entries]: the block of keys, ascending; bitmaps [entries]: -1 if
// every query sees all of its 64 keys, else a row of words [.., 64]: bit k of word q of the row.
Mask from_blocks(int64_t batch, int64_t queries, int64_t keys, std::span<const int64_t> begin,
                 std::span<const int64_t> columns, std::span<const int64_t> bitmaps,
                 std::span<const uint64_t> words);

}  // namespace seqfuse::masks
