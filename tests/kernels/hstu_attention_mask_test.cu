// The attention kernels' mask, evaluated on the host, against its definition for every small mask.
#include "ops/kernels/attention/common/tile_mask.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/oracles/small_hstu_masks.h"

namespace seqfuse {
namespace {

using namespace ops::attention;
using oracle::HstuAttentionMask;

constexpr int kTile = 2;  // queries and keys

RowMask row_mask_of(const HstuAttentionMask& m, int i) {
  const MaskOptions options{.group_size = static_cast<int>(m.group_size),
                            .max_attn_len = static_cast<int>(m.window),
                            .full_rows = static_cast<int>(m.full_rows),
                            .causal = m.causal};
  const WorkItem item{.keys = static_cast<int>(m.keys),
                      .contexts = static_cast<int>(m.contexts),
                      .targets = static_cast<int>(m.targets)};
  return row_mask(options, item, i);
}

TEST(HstuAttentionKernelMask, IntervalsAreTheDefinition) {
  int cases = 0;
  oracle::for_each_small_mask([&](const HstuAttentionMask& definition) {
    const int keys = static_cast<int>(definition.keys);
    for (int i = 0; i < keys; ++i) {
      const RowMask row = row_mask_of(definition, i);
      for (int first = 0; first < keys; first += 3) {
        const RowMaskOfTile of_tile(row, first, 3);
        for (int j = first; j < first + 3; ++j, ++cases) {
          const bool sees = j < keys && definition(i, j);
          ASSERT_EQ(row.sees(j), sees) << describe(definition) << " i=" << i << " j=" << j;
          ASSERT_EQ(of_tile.sees(j - first), sees)
              << describe(definition) << " i=" << i << " j=" << j;
        }
      }
    }
  });
  EXPECT_GT(cases, 100'000);
}

// A tile of queries visits the tiles of keys that contain all it sees, each once and in order, and
// skips the mask only where every query sees every key.
TEST(HstuAttentionKernelMask, TilesOfKeysHoldWhatIsSeen) {
  int skipped = 0, covered = 0;
  oracle::for_each_small_mask([&](const HstuAttentionMask& definition) {
    const int keys = static_cast<int>(definition.keys);
    const auto sees_all_of = [&](int m0, int m1, int tile) {
      for (int i = m0; i < m1; ++i)
        for (int j = tile * kTile; j < std::min(keys, (tile + 1) * kTile); ++j)
          if (!definition(i, j)) return false;
      return true;
    };
    for (int m0 = 0; m0 < keys; m0 += kTile) {
      const int m1 = std::min(keys, m0 + kTile);
      TileMask mask = combine_lanes(row_mask_of(definition, m0));
      for (int i = m0 + 1; i < m1; ++i)
        mask = combine(mask, combine_lanes(row_mask_of(definition, i)));
      const KeyTiles<kTile> tiles(mask, keys);
      std::vector<bool> visited(static_cast<size_t>(keys), false);
      for (int t = 0, last = -1; t < tiles.count; last = tiles[t++]) {
        const int tile = tiles[t], begin = tile * kTile;
        ASSERT_GT(tile, last) << describe(definition) << " m0=" << m0;
        ASSERT_LT(begin, keys) << describe(definition) << " m0=" << m0;
        EXPECT_EQ(mask.covers(begin, begin + kTile, keys), tiles.covered(t))
            << describe(definition) << " m0=" << m0 << " tile=" << tile;
        if (tiles.covered(t)) {
          ASSERT_TRUE(sees_all_of(m0, m1, tile)) << describe(definition) << " m0=" << m0;
          ++covered;
        }
        for (int j = begin; j < std::min(keys, begin + kTile); ++j)
          visited[static_cast<size_t>(j)] = true;
      }
      for (int i = m0; i < m1; ++i) {
        for (int j = 0; j < keys; ++j) {
          if (!definition(i, j)) continue;
          ASSERT_TRUE(visited[static_cast<size_t>(j)])
              << describe(definition) << " i=" << i << " j=" << j;
          ASSERT_TRUE(mask.touches(j, j + 1)) << describe(definition) << " i=" << i << " j=" << j;
        }
      }
      skipped += static_cast<int>(std::count(visited.begin(), visited.end(), false));
    }
  });
  EXPECT_GT(skipped, 10'000);
  EXPECT_GT(covered, 10'000);
}

}  // namespace
}  // namespace seqfuse
