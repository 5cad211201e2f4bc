// The mask of one sequence as intervals of keys: a query sees [lo, lo + length) and
// [group_lo, group_lo + group_length). The same closed form as ops/cpu/hstu_attention_mask.h. Runs
// on the host too, for tests.
#pragma once

#include <climits>

#include "ops/kernels/attention/sm80/schedule.cuh"

namespace seqfuse::ops::sm80 {

struct RowMask {
  int lo, length;
  int group_lo, group_length;

  __host__ __device__ __forceinline__ bool sees(int j) const {
    return static_cast<unsigned>(j - lo) < static_cast<unsigned>(length) ||
           static_cast<unsigned>(j - group_lo) < static_cast<unsigned>(group_length);
  }
};

__host__ __device__ __forceinline__ RowMask make_row_mask(int lo, int hi, int group_lo,
                                                          int group_hi) {
  return {lo, max(hi - lo, 0), group_lo, max(group_hi - group_lo, 0)};
}

// Of the query at position i among the keys.
__host__ __device__ __forceinline__ RowMask row_mask(const MaskOptions& o, const WorkItem& item,
                                                     int i) {
  const int keys = item.keys, contexts = item.contexts, history_end = keys - item.targets;
  if (i < contexts) {
    if (o.causal) return {0, history_end, 0, 0};
    const bool windowed =
        o.window > 0 && !(o.full_rows > 0 && history_end - contexts + 1 <= o.full_rows);
    const int reach = windowed ? min(keys, contexts + o.window) : keys;
    return {0, max(history_end, reach), 0, 0};
  }
  const bool windowed = o.window > 0 && !(o.full_rows > 0 && i >= history_end - o.full_rows);
  int lo = windowed ? max(0, i - o.window) : 0;
  if (lo < contexts) lo = 0;  // all contexts stand at one place, that before the first event
  const int hi = min(o.causal ? i + 1 : windowed ? i + o.window + 1 : keys, keys);
  if (i < history_end) return make_row_mask(lo, hi, 0, 0);
  const int group = history_end + (i - history_end) / o.group_size * o.group_size;
  return make_row_mask(lo, min(hi, history_end), max(lo, group), min(hi, group + o.group_size));
}

// The same as seen from a tile of keys, in one word: four numbers of [0, keys of the tile], counted
// from its first key.
class RowMaskOfTile {
 public:
  RowMaskOfTile() = default;
  __host__ __device__ __forceinline__ RowMaskOfTile(const RowMask& m, int first_key,
                                                    int tile_keys) {
    const auto place = [&](int key) {
      return static_cast<unsigned>(min(max(key - first_key, 0), tile_keys));
    };
    const unsigned lo = place(m.lo), hi = place(m.lo + m.length);
    const unsigned group_lo = place(m.group_lo), group_hi = place(m.group_lo + m.group_length);
    bits_ = lo | (hi - lo) << 8 | group_lo << 16 | (group_hi - group_lo) << 24;
  }
  __host__ __device__ __forceinline__ bool sees(int j) const {
    const auto at = static_cast<unsigned>(j);
    return at - (bits_ & 255) < (bits_ >> 8 & 255) || at - (bits_ >> 16 & 255) < bits_ >> 24;
  }

 private:
  unsigned bits_;
};

// What the queries of a tile see, together: which tiles of keys to visit, and which need no mask.
struct TileMask {
  int lo_min, lo_max, hi_min, hi_max, group_lo, group_hi;

  __host__ __device__ __forceinline__ bool touches(int begin, int end) const {
    return (begin < hi_max && end > lo_min) || (begin < group_hi && end > group_lo);
  }
  // Keys beyond the sequence need no mask: their rows are zeros.
  __host__ __device__ __forceinline__ bool covers(int begin, int end, int keys) const {
    return lo_max <= begin && hi_min >= min(end, keys);
  }
};

// Over the lanes of a warp; the host has one.
__host__ __device__ __forceinline__ int least_of_lanes(int value) {
#ifdef __CUDA_ARCH__
  return __reduce_min_sync(0xffffffffu, value);
#else
  return value;
#endif
}
__host__ __device__ __forceinline__ int most_of_lanes(int value) {
#ifdef __CUDA_ARCH__
  return __reduce_max_sync(0xffffffffu, value);
#else
  return value;
#endif
}

// Of the masks of a warp's lanes.
__host__ __device__ __forceinline__ TileMask combine_lanes(const RowMask& m) {
  const int hi = m.lo + m.length, group_hi = m.group_lo + m.group_length;
  return {least_of_lanes(m.length > 0 ? m.lo : INT_MAX),
          most_of_lanes(m.lo),
          least_of_lanes(hi),
          most_of_lanes(m.length > 0 ? hi : 0),
          least_of_lanes(m.group_length > 0 ? m.group_lo : INT_MAX),
          most_of_lanes(m.group_length > 0 ? group_hi : 0)};
}

__host__ __device__ __forceinline__ TileMask combine(const TileMask& a, const TileMask& b) {
  return {min(a.lo_min, b.lo_min), max(a.lo_max, b.lo_max),     min(a.hi_min, b.hi_min),
          max(a.hi_max, b.hi_max), min(a.group_lo, b.group_lo), max(a.group_hi, b.group_hi)};
}

// The tiles of kN keys that a tile of queries sees: two runs, for the two intervals. Those that
// need no mask are a run too.
template <int kN>
struct KeyTiles {
  int first, first_count, second, count, keys;
  int covered_begin, covered_end;

  KeyTiles() = default;
  __host__ __device__ __forceinline__ KeyTiles(const TileMask& m, int keys) : keys(keys) {
    first = m.hi_max > 0 ? m.lo_min / kN : 0;
    const int end = m.hi_max > 0 ? (m.hi_max + kN - 1) / kN : 0;
    first_count = end - first;
    second = max(end, m.group_hi > 0 ? m.group_lo / kN : 0);
    count = first_count + max(0, (m.group_hi + kN - 1) / kN - second);
    covered_begin = (m.lo_max + kN - 1) / kN - first;
    covered_end = (m.hi_min >= keys ? (keys + kN - 1) / kN : m.hi_min / kN) - first;
  }
  // Tiles have numbers from 0 on; now from this.
  __host__ __device__ __forceinline__ void number_from(int number) {
    first -= number;
    first_count += number;
    count += number;
    covered_begin += number;
    covered_end += number;
  }
  __host__ __device__ __forceinline__ int operator[](int t) const {
    return t < first_count ? first + t : second + t - first_count;
  }
  __host__ __device__ __forceinline__ bool covered(int t) const {
    return t >= covered_begin && t < covered_end;
  }
};

}  // namespace seqfuse::ops::sm80
