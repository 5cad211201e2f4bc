// Forward for head_dim 128 where shared memory fits two stages each of K and V in both blocks of an
// SM: one barrier per tile.
//
// The next piece's Q, K and V are loaded before this one's output is written, which goes through
// the second stages of K and V. Requires a grain of 16 and no bias.
#pragma once

#include "ops/kernels/attention/sm80/forward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kD_>
struct ForwardPairsShape {
  static constexpr int kD = kD_, kM = 128, kN = 64, kStages = 2;
  static constexpr int kThreads = kM, kBlocks = 2;
  static constexpr int kTile = kM * kD * 2, kRingTile = kN * kD * 2;

  struct Shared {
    RowMask rows[kM];
    TileMask warps[kM / 32];
    KeyTiles<kN> tiles[kM / 32];  // per warp: registers are scarce
    Worker::Shared work;
  };
  static constexpr int kTiles = kTile + 4 * kRingTile;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    forward_pairs_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN;
  constexpr int kPair = 2 * Shape::kRingTile;
  static_assert(kM == 2 * kN);
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  // K0 V0 K1 V1
  const uint32_t q_tile = shared_address(memory), ring = q_tile + Shape::kTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp * 32;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t k_lane = Tile<kD>::columns_first(ring, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring + Shape::kRingTile, lane);
  const float scale = 0.5f * args.alpha;
  using Loader = TileLoader<kN, kD, Shape::kThreads>;

  wait_for_kernel_before();
  Worker worker(args.list, args.heads, &shared.work);
  KeyTiles<kN>& tiles = shared.tiles[warp];
  Loader keys, values;
  const auto load_pair = [&](int t) {
    // Past the last tile load zeros, which are not read: this avoids a branch.
    const int j = t < tiles.count ? tiles[t] * kN : tiles.keys;
    const uint32_t to = ring + (t & 1) * kPair;
    keys.load_aligned(to, args.k, j, tiles.keys - j, args.head_dim);
    values.load_aligned(to + Shape::kRingTile, args.v, j, tiles.keys - j, args.head_dim);
    commit_copies();
  };
  // Loads the piece's Q and its first K and V, and determines what it sees.
  const auto begin = [&] {
    const WorkItem& item = worker.item();
    const int m0 = item.tile * kM;
    TileLoader<kM, kD, Shape::kThreads>(args.q, item.q_begin + m0, worker.head())
        .load_aligned(q_tile, args.q, 0, item.queries - m0, args.head_dim);
    tiles = KeyTiles<kN>(make_row_masks<kM>(shared, args.mask, item, m0), item.keys);
    __syncwarp();
    keys = Loader(args.k, item.k_begin, worker.head());
    values = Loader(args.v, item.k_begin, worker.head());
    load_pair(0);
  };
  if (!worker.done()) begin();
  while (!worker.done()) {
    Accumulators<32, kD> out;
    out.clear();
    const auto run = [&](int t, auto masked) {
      const uint32_t v_at = v_lane + (t & 1) * kPair;
      Accumulators<32, kN> s;
      multiply_rows_at<T, kD>(s, q_lane, k_lane + (t & 1) * kPair, [](int) {});
      if constexpr (masked()) hide(s, shared.rows, row0, tiles[t] * kN, lane);
#pragma unroll
      for (int k = 0; k < kN / 16; ++k) {
        // Late on purpose: it overlaps with the products already issued.
        if (k == 1) load_pair(t + 1);
        uint32_t a[2][4];
        silu_fragments<T>(a, s, scale, k);
        add_values<T, kD>(out, a, v_at, k, 0);
      }
    };
    for (int t = 0; t < tiles.count; ++t) {
      wait_copies<0>();
      __syncthreads();
      worker.look_ahead(t, tiles.count);
      const int j0 = tiles[t] * kN;
      if (tiles.covered(t)) {
        run(t, No());
      } else if (shared.warps[warp].touches(j0, j0 + kN)) {
        run(t, Yes());
      } else {
        load_pair(t + 1);
      }
    }
    worker.end_piece(tiles.count);
    if (!worker.done()) begin();
    write_output<T, kD, kM>(args, worker.last_item(), worker.last_head(), ring + kPair, row0, 0,
                            out, lane);
  }
}

}  // namespace seqfuse::ops::attention::sm80
