// Only dQ, for the deterministic backward pass: a block takes a tile of queries and loops over the
// tiles of keys that it sees, like the forward kernel, with dQ += dS K instead of O += P V.
#pragma once

#include "ops/kernels/attention/sm80/backward_parts.cuh"
#include "ops/kernels/attention/sm80/forward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kD_, bool kBias_, bool kIsShort = false>
struct BackwardQueriesShape {
  static constexpr int kD = kD_, kM = kD == 256 ? (kIsShort ? 32 : 64) : 128, kN = 32;
  static constexpr bool kBias = kBias_;
  static constexpr int kSplit = kD == 256 ? 2 : 1;  // as in ForwardShape
  static constexpr int kRowGroups = kM / 32, kThreads = 32 * kRowGroups * kSplit;
  static constexpr int kStages = kIsShort ? 1 : 2;
  static constexpr int kBlocks = kD == 256 ? 1 : 2;
  static constexpr int kTile = kM * kD * 2, kKeyTile = kN * kD * 2;
  static constexpr int kScores = kSplit > 1 ? kM* kN * 2 : 0;

  struct Shared {
    RowMask rows[kM];
    TileMask warps[kRowGroups];
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles = 2 * kTile + 2 * kStages * kKeyTile + kScores;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    backward_queries_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN, kSplit = Shape::kSplit;
  constexpr int kThreads = Shape::kThreads, kStages = Shape::kStages;
  constexpr int kKeys = kN / kSplit, kColumns = kD / kSplit;
  constexpr bool kBias = Shape::kBias;
  using Wide = Tile<kD>;
  using Scores = Tile<kN>;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t q_tile = shared_address(memory), do_tile = q_tile + Shape::kTile;
  const uint32_t k_tiles = do_tile + Shape::kTile;
  const uint32_t v_tiles = k_tiles + kStages * Shape::kKeyTile;
  const uint32_t ds_tile = v_tiles + kStages * Shape::kKeyTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp % Shape::kRowGroups * 32, part = warp / Shape::kRowGroups;
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  Worker worker(args.list, args.heads, &shared.work);
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), m0 = item.tile * kM;
    const int rows = min(kM, item.queries - m0);
    const int i0 = item.keys - item.queries + m0;
    TileLoader<kM, kD, kThreads>(args.q, item.q_begin + m0, head)
        .load(q_tile, args.q, 0, rows, args.head_dim);
    TileLoader<kM, kD, kThreads>(args.dout, item.q_begin + m0, head)
        .load(do_tile, args.dout, 0, rows, args.head_dim);
    if constexpr (kBias) shared.bias.template load_times_after<kThreads>(args.bias, item, i0, 0);
    const KeyTiles<kN> tiles(make_row_masks<kM>(shared, args.mask, item, m0), item.keys);
    const auto fill = [&](int t) {
      if (t < tiles.count) {
        const int j = tiles[t] * kN, to = (t & (kStages - 1)) * Shape::kKeyTile;
        TileLoader<kN, kD, kThreads>(args.k, item.k_begin + j, head)
            .load(k_tiles + to, args.k, 0, item.keys - j, args.head_dim);
        TileLoader<kN, kD, kThreads>(args.v, item.k_begin + j, head)
            .load(v_tiles + to, args.v, 0, item.keys - j, args.head_dim);
        if constexpr (kBias) {
          shared.bias.template load_times<kThreads>(args.bias, item, j, t & 1);
          shared.bias.template load_position<kThreads>(args.bias, i0, j, t & 1);
        }
      }
      commit_copies();
    };
    fill(0);

    // Ask for the next piece two tiles before the last.
    if (tiles.count == 0) {
      worker.ask();
      worker.fetch();
    }
    Accumulators<32, kColumns> dq;
    dq.clear();
    for (int t = 0; t < tiles.count; ++t) {
      worker.look_ahead(t, tiles.count);
      wait_copies<0>();
      __syncthreads();
      if constexpr (kStages == 2) fill(t + 1);
      const uint32_t k_tile = k_tiles + (t & (kStages - 1)) * Shape::kKeyTile;
      const uint32_t v_tile = v_tiles + (t & (kStages - 1)) * Shape::kKeyTile;
      Accumulators<32, kKeys> s, dp;
      multiply_rows<T, kD>(s, q_tile, k_tile, row0, part * kKeys, lane);
      multiply_rows<T, kD>(dp, do_tile, v_tile, row0, part * kKeys, lane);
      const int j0 = tiles[t] * kN;
      if constexpr (kBias)
        add_bias<false>(s, shared.bias, args, 0, t & 1, t & 1, row0, part * kKeys, lane);
      if (!tiles.covered(t)) {
        // Mask dp, not the score: silu'(0) is not 0.
        hide(dp, shared.rows, row0, j0 + part * kKeys, lane);
      }
      silu_and_gradient(s, dp, scale);
      if constexpr (kSplit > 1) {
        store_accumulators<T, kN>(ds_tile, row0, part * kKeys, dp, 1.0f, lane);
        __syncthreads();
      }
      const uint32_t ds_rows = Scores::rows_first(ds_tile + row0 * Scores::kRowBytes, lane);
      const uint32_t k_rows = Wide::rows_first(k_tile, lane);
#pragma unroll
      for (int k = 0; k < kN / 16; ++k) {
        uint32_t a[2][4];
        if constexpr (kSplit > 1) {
          load_matrices(a[0], Scores::block(ds_rows, 0, k));
          load_matrices(a[1], Scores::block(ds_rows, 1, k));
        } else {
          to_fragments<T>(a, dp, k);
        }
        multiply_step<T>(dq, a, [&](int c, uint32_t(&b)[4]) {
          load_matrices_transposed(b, Wide::block(k_rows, k, part * (kColumns / 16) + c));
        });
      }
      if constexpr (kStages == 1) {
        __syncthreads();
        fill(t + 1);
      }
    }

    commit_copies();
    wait_copies<0>();
    __syncthreads();
    store_accumulators<T, kD>(q_tile, row0, part * kColumns, dq, query_key_scale(args), lane);
    __syncwarp();
    store_gradient_rows<T, kD, 32, kColumns>(args.dq, item.q_begin + m0, head, args.head_dim, rows,
                                             q_tile, row0, part * kColumns, lane);
    __syncthreads();
    worker.advance();
  }
}

}  // namespace seqfuse::ops::attention::sm80
