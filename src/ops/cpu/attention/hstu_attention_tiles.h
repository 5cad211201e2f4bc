// How the score matrix of one sequence is tiled. A strip is two vectors of queries. Within a block
// of keys it has at most three segments: runs of keys seen by the first vector, by both, or by the
// second. Scores outside segments are not computed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/attention/hstu_attention_mask.h"
#include "ops/cpu/row_vectors.h"

namespace seqfuse::ops::cpu {

inline constexpr int64_t kKeyBlock = 64;

// Keys [lo, hi).
struct KeyRange {
  int64_t lo = 0, hi = 0;

  bool empty() const { return lo >= hi; }
  bool contains(int64_t j) const { return j >= lo && j < hi; }
  KeyRange clip(KeyRange to) const { return {std::max(lo, to.lo), std::min(hi, to.hi)}; }
  // The smallest range that contains both.
  KeyRange hull(KeyRange other) const {
    if (empty()) return other;
    if (other.empty()) return *this;
    return {std::min(lo, other.lo), std::max(hi, other.hi)};
  }
};

// Scores to compute: keys x vectors [vec, vec + vecs) of a strip.
struct Segment {
  KeyRange keys;
  int vec = 0, vecs = 0;
};

struct Segments {
  Segment items[3];
  int count = 0;

  void add(int64_t lo, int64_t hi, int vec, int vecs) {
    if (lo < hi) items[count++] = {{lo, hi}, vec, vecs};
  }
  const Segment* begin() const { return items; }
  const Segment* end() const { return items + count; }
};

// Two vectors of neighbouring queries.
template <class T>
class Strip {
 public:
  static constexpr int kW = kLanes<T>;
  static constexpr int kWidth = 2 * kW;

  // Lane l is the query at position first + l among the keys; lanes below first_query see nothing.
  Strip(const SequenceMask& mask, int64_t first, int64_t first_query) : first_(first) {
    for (int vec = 0; vec < 2; ++vec) {
      full_[vec] = {0, INT64_MAX};
      for (int l = vec * kW; l < (vec + 1) * kW; ++l) {
        const RowMask row = first + l >= first_query ? mask.row(first + l) : RowMask{};
        lo_[l] = row.lo;
        hi_[l] = row.lo + row.length;
        group_lo_[l] = row.group_lo;
        group_hi_[l] = row.group_lo + row.group_length;
        history_[vec] = history_[vec].hull({lo_[l], hi_[l]});
        group_[vec] = group_[vec].hull({group_lo_[l], group_hi_[l]});
        full_[vec] = full_[vec].clip({lo_[l], hi_[l]});
      }
    }
  }

  int64_t first() const { return first_; }

  // Contains every key that some lane sees.
  KeyRange keys() const { return history_[0].hull(history_[1]).hull(group_[0]).hull(group_[1]); }

  Segments segments(KeyRange block) const {
    const KeyRange a = needed(0, block), b = needed(1, block);
    const KeyRange both = a.clip(b);
    Segments result;
    if (both.empty()) {
      result.add(a.lo, a.hi, 0, 1);
      result.add(b.lo, b.hi, 1, 1);
      return result;
    }
    result.add(std::min(a.lo, b.lo), both.lo, a.lo < b.lo ? 0 : 1, 1);
    result.add(both.lo, both.hi, 0, 2);
    result.add(both.hi, std::max(a.hi, b.hi), a.hi > b.hi ? 0 : 1, 1);
    return result;
  }

  // Whether every lane of the segment sees key j.
  bool sees_fully(const Segment& segment, int64_t j) const {
    return full_[segment.vec].contains(j) && full_[segment.vec + segment.vecs - 1].contains(j);
  }

  // values[l] = 0 where lane vec * kW + l does not see key j.
  template <int kCount>
  void mask(T* values, int vec, int64_t j) const {
    const auto key = static_cast<int32_t>(j);
    const int32_t *lo = lo_ + vec * kW, *hi = hi_ + vec * kW;
    const int32_t *group_lo = group_lo_ + vec * kW, *group_hi = group_hi_ + vec * kW;
    for (int l = 0; l < kCount; ++l) {
      const bool seen =
          ((key >= lo[l]) & (key < hi[l])) | ((key >= group_lo[l]) & (key < group_hi[l]));
      values[l] = seen ? values[l] : T(0);
    }
  }

 private:
  KeyRange needed(int vec, KeyRange block) const {
    return history_[vec].clip(block).hull(group_[vec].clip(block));
  }

  int64_t first_;
  KeyRange history_[2], group_[2];  // hulls of the lanes' intervals
  KeyRange full_[2];                // intersection of all lanes' first intervals
  alignas(64) int32_t lo_[kWidth], hi_[kWidth], group_lo_[kWidth], group_hi_[kWidth];
};

// Row ranges of one sequence's queries and keys.
struct SequenceShape {
  int64_t q_begin, queries, k_begin, keys;

  SequenceShape(const HstuAttentionParams& p, int64_t b)
      : q_begin(p.q_offsets[b]),
        queries(p.q_offsets[b + 1] - q_begin),
        k_begin(p.k_offsets[b]),
        keys(p.k_offsets[b + 1] - k_begin) {}

  // Position of query 0 among the keys.
  int64_t shift() const { return keys - queries; }
};

// First element of a sequence's rows for one head.
template <class T>
T* rows_of(const JaggedHeads& tensor, int64_t row, int64_t head) {
  return static_cast<T*>(tensor.data) + row * tensor.row_stride + head * tensor.head_stride;
}

// Number of strips that cover the queries. Strips are aligned to the last query, so the partial
// strip comes first; under a causal mask it sees the fewest keys.
template <class T>
int64_t strip_count(int64_t queries) {
  return (queries + Strip<T>::kWidth - 1) / Strip<T>::kWidth;
}

}  // namespace seqfuse::ops::cpu
