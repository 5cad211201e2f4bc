#include "masks/mask.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "masks/make.h"

namespace seqfuse::masks {
namespace {

void check_not_negative(const char* kind, const char* name, int64_t value) {
  SEQFUSE_CHECK_AS(UsageError, value >= 0, "mask {}: {} is {}; expected 0 or more", kind, name,
                   value);
}

// A side of a window; beyond all keys is the same as no limit.
int32_t side_of(const char* name, int64_t value) {
  check_not_negative("window", name, value);
  return static_cast<int32_t>(std::min<int64_t>(value, kUnlimited));
}

// Per-sequence values, of which one stands for every sequence.
int64_t shared_batch(const char* kind, const char* a_name, size_t a, const char* b_name, size_t b) {
  SEQFUSE_CHECK_AS(UsageError, a >= 1 && b >= 1 && (a == b || a == 1 || b == 1),
                   "mask {}: {} {} and {} {}; expected as many of both, or one", kind, a, a_name, b,
                   b_name);
  return static_cast<int64_t>(std::max(a, b));
}

}  // namespace

Mask full(int64_t queries, int64_t keys) {
  return MaskMaker::of_term(1, queries, keys, {});
}

Mask causal(int64_t queries, int64_t keys) {
  return MaskMaker::of_term(1, queries, keys, {.right = 0});
}

Mask window(int64_t queries, int64_t keys, int64_t left, int64_t right) {
  return dilated(queries, keys, left, right, 1);
}

Mask dilated(int64_t queries, int64_t keys, int64_t left, int64_t right, int64_t step) {
  SEQFUSE_CHECK_AS(UsageError, step >= 1 && step <= kUnlimited,
                   "mask dilated: step is {}; expected 1 or more", step);
  return MaskMaker::of_term(1, queries, keys,
                            {.left = side_of("left", left),
                             .right = side_of("right", right),
                             .step = static_cast<int32_t>(step)});
}

Mask global(int64_t queries, int64_t keys, int64_t tokens) {
  check_not_negative("global", "tokens", tokens);
  const auto count = static_cast<int32_t>(std::min<int64_t>(tokens, kUnlimited));
  return MaskMaker::of_term(1, queries, keys, {.kind = TermKind::global, .count = count});
}

Mask longformer(int64_t queries, int64_t keys, int64_t side, int64_t tokens) {
  return window(queries, keys, side, side) | global(queries, keys, tokens);
}

Mask random_blocks(int64_t queries, int64_t keys, int64_t count, int64_t block, uint64_t seed) {
  check_not_negative("random_blocks", "count", count);
  SEQFUSE_CHECK_AS(UsageError, block >= 1 && block <= kUnlimited,
                   "mask random_blocks: block is {}; expected 1 or more", block);
  check_not_negative("random_blocks", "queries", queries);
  check_not_negative("random_blocks", "keys", keys);
  const int64_t blocks = (keys + block - 1) / block, drawn = std::min(count, blocks);
  std::vector<int32_t> table(static_cast<size_t>(blocks * drawn));
  parallel_for(blocks, 64, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> chosen;
    for (int64_t row = begin; row < end; ++row) {
      // Floyd's sampling: each subset of that size is equally likely.
      Random random(seed, static_cast<uint64_t>(row));
      chosen.clear();
      for (int64_t i = blocks - drawn; i < blocks; ++i) {
        const auto block_of_keys = static_cast<int32_t>(random.below(static_cast<uint64_t>(i) + 1));
        const auto at = std::lower_bound(chosen.begin(), chosen.end(), block_of_keys);
        if (at != chosen.end() && *at == block_of_keys) {
          chosen.push_back(static_cast<int32_t>(i));  // larger than all others
        } else {
          chosen.insert(at, block_of_keys);
        }
      }
      std::copy(chosen.begin(), chosen.end(), table.begin() + row * drawn);
    }
  });
  return MaskMaker::of_table(1, queries, keys,
                             {.kind = TermKind::blocks,
                              .count = static_cast<int32_t>(drawn),
                              .block = static_cast<int32_t>(block),
                              .block_rows = static_cast<int32_t>(blocks)},
                             std::move(table));
}

Mask bigbird(int64_t queries, int64_t keys, int64_t side, int64_t tokens, int64_t count,
             uint64_t seed) {
  return longformer(queries, keys, side, tokens) |
         random_blocks(queries, keys, count, kBlock, seed);
}

Mask lengths(int64_t queries, int64_t keys, std::span<const int64_t> query_lengths,
             std::span<const int64_t> key_lengths) {
  const int64_t batch = shared_batch("lengths", "lengths of queries", query_lengths.size(),
                                     "lengths of keys", key_lengths.size());
  std::vector<int32_t> table;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t q = query_lengths[query_lengths.size() == 1 ? 0 : static_cast<size_t>(b)];
    const int64_t k = key_lengths[key_lengths.size() == 1 ? 0 : static_cast<size_t>(b)];
    SEQFUSE_CHECK_AS(UsageError, q >= 0 && q <= queries && k >= 0 && k <= keys,
                     "mask lengths: sequence {} has {} queries and {} keys; expected at most {} "
                     "and {}, the padded lengths",
                     b, q, k, queries, keys);
    table.push_back(static_cast<int32_t>(q));
    table.push_back(static_cast<int32_t>(k));
  }
  return MaskMaker::of_table(batch, queries, keys, {.kind = TermKind::lengths}, std::move(table));
}

Mask documents(int64_t queries, int64_t keys,
               const std::vector<std::vector<int64_t>>& document_lengths) {
  const auto batch = static_cast<int64_t>(document_lengths.size());
  SEQFUSE_CHECK_AS(UsageError, batch >= 1 && queries >= 0 && keys >= 0,
                   "mask documents: {} sequences of {} queries and {} keys; expected at least one "
                   "sequence",
                   batch, queries, keys);
  std::vector<int32_t> table(static_cast<size_t>(batch * queries * 2), 0);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t begin = 0;
    for (const int64_t length : document_lengths[static_cast<size_t>(b)]) {
      SEQFUSE_CHECK_AS(UsageError, length >= 0 && length <= keys - begin,
                       "mask documents: sequence {} has a document of {} tokens after {}; expected "
                       "0 to {}, which are left of {} keys",
                       b, length, begin, keys - begin, keys);
      const int64_t end = begin + length, shift = keys - queries;
      for (int64_t q = std::max<int64_t>(begin - shift, 0); q < end - shift; ++q) {
        table[static_cast<size_t>((b * queries + q) * 2)] = static_cast<int32_t>(begin);
        table[static_cast<size_t>((b * queries + q) * 2 + 1)] = static_cast<int32_t>(end);
      }
      begin = end;
    }
  }
  return MaskMaker::of_table(batch, queries, keys, {.kind = TermKind::intervals, .count = 1},
                             std::move(table));
}

Rule Mask::with_tables(const std::function<const void*(const void*, size_t)>& put) const {
  Rule moved = rule_;
  for (const Table& table : tables_) {
    if (table.bytes == 0) continue;
    const void* const to = put(table.data.get(), table.bytes);
    for (int i = 0; i < rule_.count; ++i) {
      if (rule_.terms[i].data == table.data.get()) moved.terms[i].data = to;
      if (rule_.terms[i].columns == table.data.get())
        moved.terms[i].columns = static_cast<const int32_t*>(to);
      if (rule_.terms[i].words == table.data.get())
        moved.terms[i].words = static_cast<const uint64_t*>(to);
    }
  }
  return moved;
}

std::vector<uint8_t> Mask::dense() const {
  const double bytes =
      static_cast<double>(batch_) * static_cast<double>(queries()) * static_cast<double>(keys());
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  SEQFUSE_CHECK_AS(UsageError, bytes < memory,
                   "mask: [{}, {}, {}] element by element takes {:.0f} GB, and this machine has "
                   "{:.0f} GB; use its blocks instead",
                   batch_, queries(), keys(), bytes * 1e-9, memory * 1e-9);
  std::vector<uint8_t> elements(static_cast<size_t>(batch_ * queries() * keys()));
  parallel_for(batch_ * queries(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      KeyBits seen = 0;
      for (int64_t k = 0; k < keys(); ++k, seen >>= 1) {
        if (k % kBlock == 0) seen = seen_keys(rule_, row / queries(), row % queries(), k);
        elements[static_cast<size_t>(row * keys() + k)] = seen & 1;
      }
    }
  });
  return elements;
}

Mask operator&(const Mask& a, const Mask& b) {
  return MaskMaker::combine(a, b, TermKind::all_of);
}

Mask operator|(const Mask& a, const Mask& b) {
  return MaskMaker::combine(a, b, TermKind::any_of);
}

}  // namespace seqfuse::masks
