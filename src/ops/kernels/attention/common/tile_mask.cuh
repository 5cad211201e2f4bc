// Which tiles of keys a tile of queries must visit, and which of those need no mask. Also compiled
// for the host, for tests.
#pragma once

#include "ops/kernels/attention/common/work_list.h"

namespace seqfuse::ops::attention {

// A RowMask relative to a tile of keys, packed in one word: four numbers in [0, keys per tile],
// counted from the tile's first key.
class RowMaskOfTile {
 public:
  RowMaskOfTile() = default;
  SEQFUSE_HOST_DEVICE RowMaskOfTile(const RowMask& m, int first_key, int tile_keys) {
    const auto place = [&](int key) {
      return static_cast<unsigned>(min(max(key - first_key, 0), tile_keys));
    };
    const unsigned lo = place(m.lo), hi = place(m.lo + m.length);
    const unsigned group_lo = place(m.group_lo), group_hi = place(m.group_lo + m.group_length);
    bits_ = lo | (hi - lo) << 8 | group_lo << 16 | (group_hi - group_lo) << 24;
  }
  SEQFUSE_HOST_DEVICE bool sees(int j) const {
    const auto at = static_cast<unsigned>(j);
    return at - (bits_ & 255) < (bits_ >> 8 & 255) || at - (bits_ >> 16 & 255) < bits_ >> 24;
  }

 private:
  unsigned bits_;
};

constexpr int kNone = 0x7fffffff;  // past all keys

// The masks of a tile's queries combined: which tiles of keys to visit, and which need no mask.
struct TileMask {
  int lo_min, lo_max, hi_min, hi_max, group_lo, group_hi;

  SEQFUSE_HOST_DEVICE bool touches(int begin, int end) const {
    return (begin < hi_max && end > lo_min) || (begin < group_hi && end > group_lo);
  }
  // Keys past the end of the sequence need no mask: their rows are zeros.
  SEQFUSE_HOST_DEVICE bool covers(int begin, int end, int keys) const {
    return lo_max <= begin && hi_min >= min(end, keys);
  }
};

// Minimum over the lanes of a warp; on the host there is one lane.
SEQFUSE_HOST_DEVICE int least_of_lanes(int value) {
#ifdef __CUDA_ARCH__
  return __reduce_min_sync(0xffffffffu, value);
#else
  return value;
#endif
}
SEQFUSE_HOST_DEVICE int most_of_lanes(int value) {
#ifdef __CUDA_ARCH__
  return __reduce_max_sync(0xffffffffu, value);
#else
  return value;
#endif
}

// Combines the masks of a warp's lanes.
SEQFUSE_HOST_DEVICE TileMask combine_lanes(const RowMask& m) {
  const int hi = m.lo + m.length, group_hi = m.group_lo + m.group_length;
  return {least_of_lanes(m.length > 0 ? m.lo : kNone),
          most_of_lanes(m.lo),
          least_of_lanes(hi),
          most_of_lanes(m.length > 0 ? hi : 0),
          least_of_lanes(m.group_length > 0 ? m.group_lo : kNone),
          most_of_lanes(m.group_length > 0 ? group_hi : 0)};
}

SEQFUSE_HOST_DEVICE TileMask combine(const TileMask& a, const TileMask& b) {
  return {min(a.lo_min, b.lo_min), max(a.lo_max, b.lo_max),     min(a.hi_min, b.hi_min),
          max(a.hi_max, b.hi_max), min(a.group_lo, b.group_lo), max(a.group_hi, b.group_hi)};
}

// The tiles of kN keys that a tile of queries sees: one run per interval. Those that need no mask
// also form a run.
template <int kN>
struct KeyTiles {
  int first, first_count, second, count, keys;
  int covered_begin, covered_end;

  KeyTiles() = default;
  SEQFUSE_HOST_DEVICE KeyTiles(const TileMask& m, int keys) : keys(keys) {
    first = m.hi_max > 0 ? m.lo_min / kN : 0;
    const int end = m.hi_max > 0 ? (m.hi_max + kN - 1) / kN : 0;
    first_count = end - first;
    second = max(end, m.group_hi > 0 ? m.group_lo / kN : 0);
    count = first_count + max(0, (m.group_hi + kN - 1) / kN - second);
    covered_begin = (m.lo_max + kN - 1) / kN - first;
    covered_end = (m.hi_min >= keys ? (keys + kN - 1) / kN : m.hi_min / kN) - first;
  }
  // Renumbers the tiles to start at number instead of 0.
  SEQFUSE_HOST_DEVICE void number_from(int number) {
    first -= number;
    first_count += number;
    count += number;
    covered_begin += number;
    covered_end += number;
  }
  SEQFUSE_HOST_DEVICE int operator[](int t) const {
    return t < first_count ? first + t : second + t - first_count;
  }
  SEQFUSE_HOST_DEVICE bool covered(int t) const { return t >= covered_begin && t < covered_end; }
};

}  // namespace seqfuse::ops::attention
