#include "masks/user_masks.h"

#include "base/error.h"
#include "masks/block_mask_view.h"
#include "masks/make.h"

namespace seqfuse::masks {
namespace {

int64_t expected_rows(const char* kind, int64_t batch, int64_t queries, int64_t keys) {
  SEQFUSE_CHECK_AS(UsageError, batch >= 1 && queries >= 0 && keys >= 0,
                   "mask {}: a batch of {}, {} queries and {} keys; expected a batch of at least 1",
                   kind, batch, queries, keys);
  return batch * queries;
}

}  // namespace

Mask from_dense(int64_t batch, int64_t queries, int64_t keys, std::span<const uint8_t> allowed) {
  const int64_t elements = expected_rows("dense", batch, queries, keys) * keys;
  SEQFUSE_CHECK_AS(UsageError, static_cast<int64_t>(allowed.size()) == elements,
                   "mask dense: {} elements; expected [{}, {}, {}], {} elements", allowed.size(),
                   batch, queries, keys, elements);
  return MaskMaker::of_table(batch, queries, keys, {.kind = TermKind::dense},
                             std::vector<uint8_t>(allowed.begin(), allowed.end()));
}

Mask from_csr(int64_t batch, int64_t queries, int64_t keys, std::span<const int64_t> offsets,
              std::span<const int64_t> columns) {
  const int64_t rows = expected_rows("CSR", batch, queries, keys);
  SEQFUSE_CHECK_AS(UsageError, static_cast<int64_t>(offsets.size()) == rows + batch,
                   "mask CSR: {} offsets; expected [{}, {}]: where the columns of each of {} "
                   "queries begin, and the end of the last one",
                   offsets.size(), batch, queries + 1, queries);
  const auto entries = static_cast<int64_t>(columns.size());
  SEQFUSE_CHECK_AS(UsageError, entries <= kUnlimited, "mask CSR: {} columns; expected at most {}",
                   entries, kUnlimited);
  std::vector<int32_t> begins, listed(columns.size());
  begins.reserve(offsets.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t q = 0; q <= queries; ++q) {
      const auto at = static_cast<size_t>(b * (queries + 1) + q);
      const int64_t least = at == 0 ? 0 : offsets[at - 1];
      SEQFUSE_CHECK_AS(
          UsageError, offsets[at] >= least && offsets[at] <= entries,
          "mask CSR: offset {} of sequence {} is {}; expected {} to {}: offsets do not "
          "descend and end with the number of columns",
          q, b, offsets[at], least, entries);
      begins.push_back(static_cast<int32_t>(offsets[at]));
      if (q == 0) continue;
      for (int64_t i = offsets[at - 1]; i < offsets[at]; ++i) {
        const int64_t column = columns[static_cast<size_t>(i)];
        SEQFUSE_CHECK_AS(UsageError, column >= 0 && column < keys,
                         "mask CSR: query {} of sequence {} has column {}; expected 0 to {}", q - 1,
                         b, column, keys - 1);
        SEQFUSE_CHECK_AS(UsageError,
                         i == offsets[at - 1] || columns[static_cast<size_t>(i - 1)] < column,
                         "mask CSR: query {} of sequence {} has column {} after {}; expected "
                         "ascending columns: sort them and remove duplicates",
                         q - 1, b, column, columns[static_cast<size_t>(i - 1)]);
        listed[static_cast<size_t>(i)] = static_cast<int32_t>(column);
      }
    }
  }
  return MaskMaker::of_csr(batch, queries, keys, std::move(begins), std::move(listed));
}

Mask from_intervals(int64_t batch, int64_t queries, int64_t keys, int64_t count,
                    std::span<const int64_t> bounds) {
  const int64_t rows = expected_rows("intervals", batch, queries, keys);
  SEQFUSE_CHECK_AS(
      UsageError, count >= 0 && static_cast<int64_t>(bounds.size()) == rows * count * 2,
      "mask intervals: {} bounds; expected [{}, {}, {}, 2]", bounds.size(), batch, queries, count);
  std::vector<int32_t> table;
  table.reserve(bounds.size());
  for (int64_t row = 0; row < rows; ++row) {
    int64_t before = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>((row * count + i) * 2);
      const int64_t begin = bounds[at], end = bounds[at + 1];
      SEQFUSE_CHECK_AS(UsageError, begin >= 0 && begin <= end && end <= keys,
                       "mask intervals: query {} of sequence {} has [{}, {}); expected begin <= "
                       "end, within 0 to {} keys",
                       row % queries, row / queries, begin, end, keys);
      if (begin < end) {
        SEQFUSE_CHECK_AS(UsageError, begin >= before,
                         "mask intervals: query {} of sequence {} has [{}, {}) after one that ends "
                         "at {}; expected ascending intervals that do not overlap",
                         row % queries, row / queries, begin, end, before);
        before = end;
      }
      table.push_back(static_cast<int32_t>(begin));
      table.push_back(static_cast<int32_t>(end));
    }
  }
  return MaskMaker::of_table(batch, queries, keys,
                             {.kind = TermKind::intervals, .count = static_cast<int32_t>(count)},
                             std::move(table));
}

Mask from_blocks(int64_t batch, int64_t queries, int64_t keys, std::span<const int64_t> begin,
                 std::span<const int64_t> columns, std::span<const int64_t> bitmaps,
                 std::span<const uint64_t> words) {
  expected_rows("blocks", batch, queries, keys);
  const int64_t rows = batch * count_of_blocks(queries, 1), key_blocks = count_of_blocks(keys, 1);
  const auto count = static_cast<int64_t>(columns.size());
  const int64_t bitmap_count = static_cast<int64_t>(words.size()) / kBlock;
  SEQFUSE_CHECK_AS(
      UsageError,
      static_cast<int64_t>(begin.size()) == rows + 1 && begin[0] == 0 &&
          begin[static_cast<size_t>(rows)] == count && bitmaps.size() == columns.size() &&
          words.size() % kBlock == 0 && count <= kUnlimited / 2,
      "mask blocks: {} begins, {} columns, {} bitmaps and {} words; expected {} begins "
      "from 0 to the number of columns, as many bitmaps, and 64 words of each",
      begin.size(), columns.size(), bitmaps.size(), words.size(), rows + 1);
  std::vector<int32_t> begins{0}, entries;
  for (int64_t row = 0; row < rows; ++row) {
    SEQFUSE_CHECK_AS(UsageError,
                     begin[static_cast<size_t>(row)] <= begin[static_cast<size_t>(row) + 1],
                     "mask blocks: row {} begins after the next; expected ascending begins", row);
    for (int64_t e = begin[static_cast<size_t>(row)]; e < begin[static_cast<size_t>(row) + 1];
         ++e) {
      const int64_t column = columns[static_cast<size_t>(e)],
                    bitmap = bitmaps[static_cast<size_t>(e)];
      const int64_t least =
          e == begin[static_cast<size_t>(row)] ? 0 : columns[static_cast<size_t>(e - 1)] + 1;
      SEQFUSE_CHECK_AS(UsageError, column >= least && column < key_blocks,
                       "mask blocks: row {} has column {}; expected ascending ones, {} to {}", row,
                       column, least, key_blocks - 1);
      SEQFUSE_CHECK_AS(UsageError, bitmap >= -1 && bitmap < bitmap_count,
                       "mask blocks: row {} has bitmap {}; expected -1 to {}", row, bitmap,
                       bitmap_count - 1);
      entries.push_back(static_cast<int32_t>(column));
      entries.push_back(static_cast<int32_t>(bitmap));
    }
    begins.push_back(static_cast<int32_t>(begin[static_cast<size_t>(row) + 1]));
  }
  return MaskMaker::of_listed(batch, queries, keys, std::move(begins), std::move(entries),
                              {words.begin(), words.end()});
}

}  // namespace seqfuse::masks
