#include "base/error.h"
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

}  // namespace seqfuse::masks
