#include "masks/block_mask.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"

namespace seqfuse::masks {
namespace {

// Which blocks of neighbouring keys the user's lists touch in one block row, so that the others need
// no search.
class Touched {
 public:
  Touched() = default;  // nothing is known
  Touched(const Rule& rule, int64_t b, int64_t q0, int64_t q1) {
    for (int i = 0; i < rule.count; ++i) {
      const Term& t = rule.terms[i];
      if (t.kind != TermKind::csr && t.kind != TermKind::intervals) continue;
      std::vector<bool>& touched = blocks_[i];
      touched.assign(static_cast<size_t>(count_of_blocks(rule.keys, 1)), false);
      const auto* data = static_cast<const int32_t*>(t.data) + b * t.batch_stride;
      for (int64_t q = q0; q < q1; ++q) {
        if (t.kind == TermKind::csr) {
          for (int32_t at = data[q]; at < data[q + 1]; ++at)
            touched[static_cast<size_t>(t.columns[at] / kBlock)] = true;
          continue;
        }
        for (int32_t n = 0; n < t.count; ++n) {
          const int32_t* bounds = data + (q * t.count + n) * 2;
          if (bounds[0] >= bounds[1]) continue;
          for (int32_t k = bounds[0] / kBlock; k <= (bounds[1] - 1) / kBlock; ++k)
            touched[static_cast<size_t>(k)] = true;
        }
      }
    }
  }

  Verdict judge(int term, int64_t key_block, Verdict verdict) const {
    const std::vector<bool>& touched = blocks_[term];
    if (!touched.empty() && !touched[static_cast<size_t>(key_block)]) verdict.some = false;
    return verdict;
  }

 private:
  std::vector<bool> blocks_[kMaxTerms];
};

struct BlockRow {
  std::vector<int32_t> column, bitmap;  // bitmap: -1, or its number within this row
  std::vector<uint64_t> bits, seen;
};

BlockRow make_row(const Rule& rule, int64_t b, const BlockMaskView& view, int64_t query_block) {
  BlockRow row;
  const int32_t step = view.step;
  const BlockTokens queries = view.queries_of(query_block);
  if (queries.count == 0) return row;
  const int64_t q1 = queries.first + (queries.count - 1) * step + 1;
  const Touched touched = step == 1 ? Touched(rule, b, queries.first, q1) : Touched();
  for (int64_t j = 0; j < view.key_blocks; ++j) {
    const BlockTokens keys = view.keys_of(j);
    if (keys.count == 0 || (keys.first - queries.first - rule.shift()) % step != 0) continue;
    const int64_t k1 = keys.first + (keys.count - 1) * step + 1;
    const Verdict verdict =
        judge_block(rule, b, {queries.first, q1, keys.first, k1},
                    [&](int term, Verdict bounds) { return touched.judge(term, j, bounds); });
    if (!verdict.some) continue;
    uint64_t words[kBlock] = {}, any = 0, all = ~uint64_t{0};
    if (verdict.missing || keys.count < kBlock) {
      for (int64_t i = 0; i < queries.count; ++i) {
        const uint64_t word = words[i] =
            seen_keys(rule, b, queries.first + i * step, keys.first, step);
        any |= word;
        all &= word;
      }
      if (any == 0) continue;
    }
    row.column.push_back(static_cast<int32_t>(j));
    if (all == ~uint64_t{0}) {
      row.bitmap.push_back(-1);
    } else {
      row.bitmap.push_back(static_cast<int32_t>(row.seen.size() / 2));
      row.bits.insert(row.bits.end(), std::begin(words), std::end(words));
      uint64_t seen_queries = 0;
      for (int q = 0; q < kBlock; ++q) seen_queries |= uint64_t{words[q] != 0} << q;
      row.seen.insert(row.seen.end(), {any, seen_queries});
    }
  }
  return row;
}

// The lists by their number of entries; those of equal length in order.
template <class Length>
std::vector<int32_t> longest_first(int64_t lists, Length&& length) {
  std::vector<int32_t> order(static_cast<size_t>(lists));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), length);
  return order;
}

}  // namespace

BlockMask::BlockMask(const Mask& mask, int32_t blocks_step)
    : batch(mask.batch()),
      queries(mask.queries()),
      keys(mask.keys()),
      step(blocks_step),
      plain(plain_kind(mask.rule())) {
  const BlockMaskView sizes = view();
  const int64_t query_blocks = sizes.query_blocks, key_blocks = sizes.key_blocks;
  std::vector<BlockRow> rows(static_cast<size_t>(batch * query_blocks));
  parallel_for(batch * query_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      rows[static_cast<size_t>(r)] =
          make_row(mask.rule(), r / query_blocks, sizes, r % query_blocks);
    }
  });
  row_begin.push_back(0);
  for (const BlockRow& made : rows) {
    const auto first = static_cast<int32_t>(seen.size() / 2);
    column.insert(column.end(), made.column.begin(), made.column.end());
    for (const int32_t b : made.bitmap) bitmap.push_back(b < 0 ? -1 : first + b);
    bits.insert(bits.end(), made.bits.begin(), made.bits.end());
    seen.insert(seen.end(), made.seen.begin(), made.seen.end());
    SEQFUSE_CHECK(
        column.size() <= size_t{kUnlimited},
        "mask: more than {} blocks that are not empty; use shorter sequences or a sparser "
        "mask",
        kUnlimited);
    row_begin.push_back(static_cast<int32_t>(column.size()));
  }
  // The transposed lists: counted, then filled in order of the block rows.
  column_begin.assign(static_cast<size_t>(batch * key_blocks) + 1, 0);
  const auto each_entry = [&](auto&& body) {
    for (int64_t r = 0; r < batch * query_blocks; ++r) {
      for (int32_t e = row_begin[r]; e < row_begin[r + 1]; ++e)
        body(static_cast<size_t>(r / query_blocks * key_blocks + column[e]), r % query_blocks, e);
    }
  };
  each_entry([&](size_t list, int64_t, int32_t) { ++column_begin[list + 1]; });
  for (size_t i = 1; i < column_begin.size(); ++i) column_begin[i] += column_begin[i - 1];
  std::vector<int32_t> next(column_begin.begin(), column_begin.end() - 1);
  row.resize(column.size());
  column_bitmap.resize(column.size());
  each_entry([&](size_t list, int64_t query_block, int32_t e) {
    const auto to = static_cast<size_t>(next[list]++);
    row[to] = static_cast<int32_t>(query_block);
    column_bitmap[to] = bitmap[static_cast<size_t>(e)];
  });
  row_order = longest_first(batch * query_blocks,
                            [&](int32_t r) { return row_begin[r + 1] - row_begin[r]; });
  column_order = longest_first(batch * key_blocks,
                               [&](int32_t c) { return column_begin[c + 1] - column_begin[c]; });
}

BlockMaskView BlockMask::view() const {
  return {.batch = batch,
          .queries = queries,
          .keys = keys,
          .query_blocks = count_of_blocks(queries, step),
          .key_blocks = count_of_blocks(keys, step),
          .step = step,
          .row_begin = row_begin.data(),
          .column = column.data(),
          .bitmap = bitmap.data(),
          .row_order = row_order.data(),
          .column_begin = column_begin.data(),
          .row = row.data(),
          .column_bitmap = column_bitmap.data(),
          .column_order = column_order.data(),
          .bits = bits.data(),
          .seen = seen.data()};
}

MaskCounts BlockMask::counts() const {
  MaskCounts counts;
  const BlockMaskView sizes = view();
  const int64_t query_blocks = sizes.query_blocks;
  counts.elements = batch * queries * keys;
  counts.blocks = batch * query_blocks * sizes.key_blocks;
  for (int64_t r = 0; r < batch * query_blocks; ++r) {
    const int64_t rows = sizes.queries_of(r % query_blocks).count;
    for (int32_t e = row_begin[r]; e < row_begin[r + 1]; ++e) {
      if (bitmap[e] < 0) {
        ++counts.full;
        counts.allowed += rows * kBlock;
      }
    }
  }
  counts.partial = static_cast<int64_t>(column.size()) - counts.full;
  for (const uint64_t word : bits) counts.allowed += std::popcount(word);
  return counts;
}

double MaskCounts::efficiency() const {
  const int64_t computed = (full + partial) * kBlock * kBlock;
  return computed == 0 ? 0 : static_cast<double>(allowed) / static_cast<double>(computed);
}

}  // namespace seqfuse::masks
