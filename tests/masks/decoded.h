// A block structure, element by element, as kernels read it.
#pragma once

#include <cstdint>
#include <vector>

#include "masks/block_mask.h"

namespace seqfuse::test {

// [batch, queries, keys] by the lists of rows; with `transposed`, by those of columns.
inline std::vector<uint8_t> decoded(const masks::BlockMaskView& m, bool transposed = false) {
  std::vector<uint8_t> elements(static_cast<size_t>(m.batch * m.queries * m.keys), 0);
  const int64_t lists = m.batch * (transposed ? m.key_blocks : m.query_blocks);
  const int32_t* begin = transposed ? m.column_begin : m.row_begin;
  for (int64_t list = 0; list < lists; ++list) {
    for (int32_t e = begin[list]; e < begin[list + 1]; ++e) {
      const int64_t blocks = lists / m.batch, b = list / blocks, own = list % blocks;
      const int64_t q0 = (transposed ? m.row[e] : own) * masks::kBlock;
      const int64_t k0 = (transposed ? own : m.column[e]) * masks::kBlock;
      const int32_t bitmap = transposed ? m.column_bitmap[e] : m.bitmap[e];
      for (int64_t q = q0; q < q0 + masks::kBlock; ++q) {
        for (int64_t k = k0; k < k0 + masks::kBlock; ++k) {
          const bool sees =
              bitmap < 0 || (m.bits[int64_t{bitmap} * masks::kBlock + q - q0] >> (k - k0) & 1) != 0;
          // A full block's queries may end early; its keys may not, so .at() must not throw.
          if (sees && q < m.queries) elements.at((b * m.queries + q) * m.keys + k) += 1;
        }
      }
    }
  }
  return elements;
}

}  // namespace seqfuse::test
