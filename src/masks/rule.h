// Which keys a query attends to: the one boolean definition behind every mask. Tests' references,
// dense masks for other libraries, and our block structure (block_mask.h) all evaluate it.
//
// Query q of a sequence has position p = q + shift among the keys, shift = keys - queries: the
// queries are the last tokens of the keys, as in decoding. With equal lengths p = q.
//
// The functions are constexpr, so host code and kernels (--expt-relaxed-constexpr) call the same.
#pragma once

#include "base/fixed_width.h"

namespace seqfuse::masks {

// What one term of a rule lets through. data: see the kind; tables with one row a sequence have
// batch_stride elements between sequences, 0 if all sequences share one.
enum class TermKind : int32_t {
  window,     // p - left <= k <= p + right, both ends included, and (k - p) % step == 0
  global,     // p < count or k < count: the first tokens see all and are seen by all
  lengths,    // q < data[0] and k < data[1]; data: int32 [batch, 2], queries and keys that exist
  blocks,     // k / block in row p / block of data: int32 [rows, count], -1: none
  dense,      // data[q * keys + k]; data: bool [batch, queries, keys], one byte an element
  csr,        // k in columns [data[q], data[q + 1]); data: int32 [batch, queries + 1]
  intervals,  // data[q][i][0] <= k < data[q][i][1]; data: int32 [batch, queries, count, 2]
  listed,     // a block structure: data: int32 [batch * blocks of queries + 1], the first entry of
              // each; columns: int32 [entries, 2], the block of keys, ascending, and -1 for a full
              // one or the number of its words; words [.., 64]
  all_of,     // both of the two results before it
  any_of,     // either of them
};

// A side of a window that has no limit.
inline constexpr int32_t kUnlimited = 0x7fffffff;

struct Term {
  TermKind kind = TermKind::window;
  int32_t left = kUnlimited, right = kUnlimited, step = 1;  // window
  int32_t count = 0;                 // global: tokens; blocks: columns of data; intervals: of a row
  int32_t block = 0;                 // blocks: tokens of a block
  int32_t block_rows = 0;            // blocks: rows of data
  const void* data = nullptr;        // host or device memory, as the caller needs
  const int32_t* columns = nullptr;  // csr: sorted in each row; listed
  const uint64_t* words = nullptr;   // listed
  int64_t batch_stride = 0;          // elements of data between sequences
};

inline constexpr int kMaxTerms = 16;

// Terms in postfix order: all_of and any_of combine the two results before them.
struct Rule {
  Term terms[kMaxTerms];
  int32_t count = 0;
  int32_t queries = 0, keys = 0;

  constexpr int64_t shift() const { return int64_t{keys} - queries; }
};

// 64 neighbouring keys from a multiple of 64, as bits; bit i is key first + i.
using KeyBits = uint64_t;
inline constexpr int32_t kBlock = 64;  // queries and keys of a block

namespace detail {

// The keys of [low, high) among the 64 from first on.
constexpr KeyBits bits_of_range(int64_t low, int64_t high, int64_t first) {
  low = low > first ? low - first : 0;
  high = high < first + kBlock ? high - first : kBlock;
  if (low >= high) return 0;
  return (~KeyBits{0} >> (kBlock - (high - low))) << low;
}

constexpr KeyBits window_bits(const Term& t, int64_t p, int64_t first) {
  const int64_t low = t.left == kUnlimited ? 0 : p - t.left;
  const int64_t high = t.right == kUnlimited ? first + kBlock : p + t.right + 1;
  const KeyBits bits = bits_of_range(low, high, first);
  if (t.step == 1 || bits == 0) return bits;
  KeyBits pattern = 0;
  for (int64_t i = ((p - first) % t.step + t.step) % t.step; i < kBlock; i += t.step)
    pattern |= KeyBits{1} << i;
  return bits & pattern;
}

constexpr KeyBits block_bits(const Term& t, int64_t p, int64_t first) {
  if (p < 0 || p / t.block >= t.block_rows) return 0;
  const auto* row = static_cast<const int32_t*>(t.data) + p / t.block * t.count;
  KeyBits bits = 0;
  for (int32_t i = 0; i < t.count; ++i) {
    if (row[i] >= 0)
      bits |= bits_of_range(int64_t{row[i]} * t.block, (int64_t{row[i]} + 1) * t.block, first);
  }
  return bits;
}

constexpr KeyBits dense_bits(const Term& t, int64_t b, int64_t q, int64_t keys, int64_t first) {
  const auto* row = static_cast<const uint8_t*>(t.data) + b * t.batch_stride + q * keys;
  KeyBits bits = 0;
  for (int64_t k = first; k < first + kBlock && k < keys; ++k)
    bits |= KeyBits{row[k] != 0} << (k - first);
  return bits;
}

constexpr KeyBits csr_bits(const Term& t, int64_t b, int64_t q, int64_t first) {
  const auto* row = static_cast<const int32_t*>(t.data) + b * t.batch_stride + q;
  int32_t low = row[0], high = row[1];
  const int32_t end = high;
  while (low < high) {  // the first column of at least `first`
    const int32_t middle = low + (high - low) / 2;
    if (t.columns[middle] < first) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  KeyBits bits = 0;
  for (; low < end && t.columns[low] < first + kBlock; ++low)
    bits |= KeyBits{1} << (t.columns[low] - first);
  return bits;
}

constexpr KeyBits interval_bits(const Term& t, int64_t b, int64_t q, int64_t first) {
  const auto* row = static_cast<const int32_t*>(t.data) + b * t.batch_stride + q * t.count * 2;
  KeyBits bits = 0;
  for (int32_t i = 0; i < t.count; ++i) bits |= bits_of_range(row[2 * i], row[2 * i + 1], first);
  return bits;
}

// What is listed for a block: -1 full, the number of its words, or -2: nothing.
constexpr int32_t listed_block(const Term& t, int64_t b, int64_t q, int64_t k) {
  const auto* begin = static_cast<const int32_t*>(t.data) + b * t.batch_stride + q / kBlock;
  int32_t low = begin[0], high = begin[1];
  const int32_t end = high;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (t.columns[2 * int64_t{middle}] < k / kBlock) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < end && t.columns[2 * int64_t{low}] == k / kBlock ? t.columns[2 * int64_t{low} + 1]
                                                                : -2;
}

constexpr KeyBits listed_bits(const Term& t, int64_t b, int64_t q, int64_t first) {
  const int32_t block = listed_block(t, b, q, first);
  return block == -2   ? 0
         : block == -1 ? ~KeyBits{0}
                       : t.words[block * int64_t{kBlock} + q % kBlock];
}

constexpr KeyBits term_bits(const Rule& rule, const Term& t, int64_t b, int64_t q, int64_t first) {
  const int64_t p = q + rule.shift();
  switch (t.kind) {
    case TermKind::window:
      return window_bits(t, p, first);
    case TermKind::global:
      return p >= 0 && p < t.count ? ~KeyBits{0} : bits_of_range(0, t.count, first);
    case TermKind::lengths: {
      const auto* lengths = static_cast<const int32_t*>(t.data) + b * t.batch_stride;
      return q < lengths[0] ? bits_of_range(0, lengths[1], first) : 0;
    }
    case TermKind::blocks:
      return block_bits(t, p, first);
    case TermKind::dense:
      return dense_bits(t, b, q, rule.keys, first);
    case TermKind::csr:
      return csr_bits(t, b, q, first);
    case TermKind::intervals:
      return interval_bits(t, b, q, first);
    case TermKind::listed:
      return listed_bits(t, b, q, first);
    case TermKind::all_of:
    case TermKind::any_of:
      break;
  }
  return 0;
}

}  // namespace detail

// The keys that query q of sequence b sees, of the 64 from first on, a multiple of 64. Keys that do
// not exist are never seen. q in [0, queries).
constexpr KeyBits seen_keys(const Rule& rule, int64_t b, int64_t q, int64_t first) {
  KeyBits results[kMaxTerms] = {};
  int depth = 0;
  for (int i = 0; i < rule.count; ++i) {
    const Term& term = rule.terms[i];
    if (term.kind == TermKind::all_of || term.kind == TermKind::any_of) {
      const KeyBits right = results[--depth];
      KeyBits& left = results[depth - 1];
      left = term.kind == TermKind::all_of ? left & right : left | right;
    } else {
      results[depth++] = detail::term_bits(rule, term, b, q, first);
    }
  }
  return results[0] & detail::bits_of_range(0, rule.keys, first);
}

// The same of the 64 keys first, first + step, ...; first is any key.
constexpr KeyBits seen_keys(const Rule& rule, int64_t b, int64_t q, int64_t first, int32_t step) {
  if (step == 1) return seen_keys(rule, b, q, first);
  KeyBits bits = 0, word = 0;
  int64_t of_word = -1;
  for (int64_t i = 0, k = first; i < kBlock && k < rule.keys; ++i, k += step) {
    if (k / kBlock != of_word) {
      of_word = k / kBlock;
      word = seen_keys(rule, b, q, of_word * kBlock);
    }
    bits |= (word >> (k % kBlock) & 1) << i;
  }
  return bits;
}

// The largest step of which k - p is a multiple for every allowed pair, as the terms alone tell.
constexpr int32_t common_step(const Rule& rule) {
  int32_t results[kMaxTerms] = {};
  int depth = 0;
  for (int i = 0; i < rule.count; ++i) {
    const Term& term = rule.terms[i];
    if (term.kind == TermKind::all_of || term.kind == TermKind::any_of) {
      const int32_t right = results[--depth];
      int32_t& left = results[depth - 1];
      if (term.kind == TermKind::all_of) {
        left = left > right ? left : right;
      } else {
        for (int32_t other = right; other != 0;) {  // the greatest common divisor
          const int32_t rest = left % other;
          left = other;
          other = rest;
        }
      }
    } else {
      results[depth++] = term.kind == TermKind::window ? term.step : 1;
    }
  }
  return depth == 0 ? 1 : results[0];
}

// The step of a rule's blocks (block_mask_view.h): the common one, if that fills blocks.
constexpr int32_t block_step(const Rule& rule) {
  const int64_t step = common_step(rule);
  const int64_t least = rule.queries < rule.keys ? rule.queries : rule.keys;
  return least >= step * kBlock ? static_cast<int32_t>(step) : 1;
}

// Whether query q of sequence b sees key k.
constexpr bool allowed(const Rule& rule, int64_t b, int64_t q, int64_t k) {
  return (seen_keys(rule, b, q, k / kBlock * kBlock) >> (k % kBlock) & 1) != 0;
}

// A mask that is one term for all sequences, such that other libraries have it built in. causal: of
// as many queries as keys.
enum class Plain : int32_t { none, full, causal };

constexpr Plain plain_kind(const Rule& rule) {
  const Term& t = rule.terms[0];
  if (rule.count != 1 || t.kind != TermKind::window || t.step != 1) return Plain::none;
  if (t.left < rule.keys) return Plain::none;
  if (t.right >= rule.keys && t.right >= rule.queries) return Plain::full;
  return t.right == 0 && rule.queries == rule.keys ? Plain::causal : Plain::none;
}

// What is known of a block without looking at its elements.
struct Verdict {
  bool some = true;     // an element may be allowed
  bool missing = true;  // an element may be forbidden
};

// Queries [q0, q1), keys [k0, k1), which exist; neither is empty.
struct BlockRange {
  int64_t q0, q1, k0, k1;
};

namespace detail {

constexpr Verdict judge_window(const Term& t, const BlockRange& r, int64_t shift) {
  // k - p lies in [least, most].
  const int64_t least = r.k0 - (r.q1 - 1 + shift), most = r.k1 - 1 - (r.q0 + shift);
  const bool below = t.left != kUnlimited && most < -int64_t{t.left};
  const bool above = t.right != kUnlimited && least > t.right;
  const bool inside = (t.left == kUnlimited || least >= -int64_t{t.left}) &&
                      (t.right == kUnlimited || most <= t.right);
  return {.some = !below && !above, .missing = !inside || t.step != 1};
}

constexpr Verdict judge_global(const Term& t, const BlockRange& r, int64_t shift) {
  const int64_t p0 = r.q0 + shift, p1 = r.q1 + shift;
  const bool rows_may = p0 < t.count && p1 > 0, rows_are = p0 >= 0 && p1 <= t.count;
  return {.some = rows_may || r.k0 < t.count, .missing = !rows_are && r.k1 > t.count};
}

constexpr Verdict judge_blocks(const Term& t, const BlockRange& r, int64_t shift) {
  const int64_t p0 = r.q0 + shift < 0 ? 0 : r.q0 + shift, p1 = r.q1 + shift;
  Verdict verdict{.some = false, .missing = true};
  for (int64_t row = p0 / t.block; row * t.block < p1 && row < t.block_rows; ++row) {
    const auto* listed = static_cast<const int32_t*>(t.data) + row * t.count;
    for (int32_t i = 0; i < t.count; ++i) {
      const int64_t begin = int64_t{listed[i]} * t.block;
      if (listed[i] >= 0 && begin < r.k1 && begin + t.block > r.k0) verdict.some = true;
    }
  }
  return verdict;
}

constexpr Verdict judge_listed(const Term& t, int64_t b, const BlockRange& r) {
  if (r.q0 / kBlock != (r.q1 - 1) / kBlock || r.k0 / kBlock != (r.k1 - 1) / kBlock) return {};
  const int32_t block = listed_block(t, b, r.q0, r.k0);
  return {.some = block != -2, .missing = block != -1};
}

constexpr Verdict judge_term(const Rule& rule, const Term& t, int64_t b, const BlockRange& r) {
  switch (t.kind) {
    case TermKind::window:
      return judge_window(t, r, rule.shift());
    case TermKind::global:
      return judge_global(t, r, rule.shift());
    case TermKind::lengths: {
      const auto* lengths = static_cast<const int32_t*>(t.data) + b * t.batch_stride;
      return {.some = (r.q0 < lengths[0]) && (r.k0 < lengths[1]),
              .missing = (r.q1 > lengths[0]) || (r.k1 > lengths[1])};
    }
    case TermKind::blocks:
      return judge_blocks(t, r, rule.shift());
    case TermKind::listed:
      return judge_listed(t, b, r);
    default:
      return {};
  }
}

}  // namespace detail

// Judges a block from the bounds of the terms alone. judge(i, verdict) may replace the verdict of
// term i, for a caller who knows more of the user's tables.
template <class Judge>
constexpr Verdict judge_block(const Rule& rule, int64_t b, const BlockRange& range, Judge&& judge) {
  Verdict results[kMaxTerms];
  int depth = 0;
  for (int i = 0; i < rule.count; ++i) {
    const Term& term = rule.terms[i];
    if (term.kind == TermKind::all_of || term.kind == TermKind::any_of) {
      const Verdict right = results[--depth];
      Verdict& left = results[depth - 1];
      left = term.kind == TermKind::all_of
                 ? Verdict{left.some && right.some, left.missing || right.missing}
                 : Verdict{left.some || right.some, left.missing && right.missing};
    } else {
      results[depth++] = judge(i, detail::judge_term(rule, term, b, range));
    }
  }
  return results[0];
}

}  // namespace seqfuse::masks
