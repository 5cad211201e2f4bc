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
      const int64_t q0 = m.queries_of(transposed ? m.row[e] : own).first;
      const int64_t k0 = m.keys_of(transposed ? own : m.column[e]).first;
      const int32_t bitmap = transposed ? m.column_bitmap[e] : m.bitmap[e];
      for (int64_t i = 0; i < masks::kBlock; ++i) {
        for (int64_t j = 0; j < masks::kBlock; ++j) {
          const int64_t q = q0 + i * m.step, k = k0 + j * m.step;
          const bool sees =
              bitmap < 0 || (m.bits[int64_t{bitmap} * masks::kBlock + i] >> j & 1) != 0;
          // A full block's queries may end early; its keys may not, so .at() must not throw.
          if (sees && q < m.queries) elements.at((b * m.queries + q) * m.keys + k) += 1;
        }
      }
    }
  }
  return elements;
}

}  // namespace seqfuse::test
