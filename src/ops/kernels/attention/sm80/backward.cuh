// Backward: a block takes a tile of keys and loops over the tiles of queries that see it.
//
//   S = K Q'  dP = V dO'  P = silu(S)  dS = dP silu'(S)  dV += P dO  dK += dS Q  dQ += dS' K
//
// For head_dim up to 64; backward_wide.cuh handles more. Scores have keys as rows, 32 per warp, and
// each warp has all of a tile's queries, so P and dS go from accumulators to fragments in
// registers; dS goes to shared memory only for dQ.
//
// dQ is summed in global memory by float atomics, ordered so that they cover whole cache lines.
#pragma once

#include "ops/kernels/attention/sm80/backward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <class T_, int kD_, bool kBias_>
struct BackwardShape {
  using T = T_;
  static constexpr int kD = kD_, kStages = 2, kM = kBackwardQueries, kN = 128;
  static constexpr bool kBias = kBias_;
  static constexpr int kWarps = kN / 32, kThreads = 32 * kWarps, kBlocks = 2;
  static constexpr int kQueries = 32;  // per warp at a time
  static constexpr int kKeyTile = kN * kD * 2, kQueryTile = kM * kD * 2, kScores = kN * kM * 2;

  struct Shared {
    RowMaskOfTile rows[kM];  // whole masks would not leave room for two blocks on SM 8.0
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles = 2 * kKeyTile + 2 * kStages * kQueryTile + kScores;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    backward_kernel(const __grid_constant__ Arguments args) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN;
  constexpr int kThreads = Shape::kThreads, kQueries = Shape::kQueries;
  constexpr bool kBias = Shape::kBias;
  using Wide = Tile<kD>;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t k_tile = shared_address(memory), v_tile = k_tile + Shape::kKeyTile;
  const uint32_t q_tiles = v_tile + Shape::kKeyTile;
  const uint32_t do_tiles = q_tiles + Shape::kStages * Shape::kQueryTile;
  const uint32_t ds_tile = do_tiles + Shape::kStages * Shape::kQueryTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp * 32;
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  Worker worker(args.list, args.heads, &shared.work);
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), n0 = item.tile * kN;
    const int keys = min(kN, item.keys - n0);
    TileLoader<kN, kD, kThreads>(args.k, item.k_begin + n0, head)
        .load(k_tile, args.k, 0, keys, args.head_dim);
    TileLoader<kN, kD, kThreads>(args.v, item.k_begin + n0, head)
        .load(v_tile, args.v, 0, keys, args.head_dim);
    if constexpr (kBias) shared.bias.template load_times<kThreads>(args.bias, item, n0, 0);

    const int shift = item.keys - item.queries;  // position of the first query among the keys
    QueryTiles<kN> tiles;
    const auto fill = [&](int tile, int stage) {
      if (tile >= 0) {
        const int m0 = tile * kM, rows = item.queries - m0;
        TileLoader<kM, kD, kThreads>(args.q, item.q_begin + m0, head)
            .load(q_tiles + stage * Shape::kQueryTile, args.q, 0, rows, args.head_dim);
        TileLoader<kM, kD, kThreads>(args.dout, item.q_begin + m0, head)
            .load(do_tiles + stage * Shape::kQueryTile, args.dout, 0, rows, args.head_dim);
        if constexpr (kBias) {
          shared.bias.template load_times_after<kThreads>(args.bias, item, shift + m0, stage);
          shared.bias.template load_position<kThreads>(args.bias, shift + m0, n0, stage);
        }
      }
      commit_copies();
    };

    Accumulators<32, kD> dk, dv;
    dk.clear();
    dv.clear();
    typename QueryTiles<kN>::Visit visit = tiles.next(args.tile_masks, item);
    fill(visit.tile(), 0);
    // Ask for the next piece during the last visit.
    if (visit.tile() < 0) {
      worker.ask();
      worker.fetch();
    }
    int stage = 0;
    while (visit.tile() >= 0) {
      const auto next = tiles.next(args.tile_masks, item);
      if (next.tile() < 0) worker.ask();
      if (!visit.covered() && threadIdx.x < kM) {
        const int row = min(visit.tile() * kM + static_cast<int>(threadIdx.x), item.queries - 1);
        shared.rows[threadIdx.x] = RowMaskOfTile(row_mask(args.mask, item, shift + row), n0, kN);
      }
      wait_copies<0>();
      __syncthreads();
      fill(next.tile(), stage ^ 1);
      const uint32_t q_tile = q_tiles + stage * Shape::kQueryTile;
      const uint32_t do_tile = do_tiles + stage * Shape::kQueryTile;
      const uint32_t q_rows = Wide::rows_first(q_tile, lane);
      const uint32_t do_rows = Wide::rows_first(do_tile, lane);

#pragma unroll
      for (int pass = 0; pass < kM / kQueries; ++pass) {
        const int query0 = pass * kQueries;
        Accumulators<32, kQueries> s, dp;
        multiply_rows<T, kD>(s, k_tile, q_tile, row0, query0, lane);
        if constexpr (kBias)
          add_bias<true>(s, shared.bias, args, stage, 0, stage, row0, query0, lane);
        s.scale(scale);
        if (!visit.covered()) hide_transposed(s, kHiddenHalf, shared.rows, query0, row0, lane);
        multiply_rows<T, kD>(dp, v_tile, do_tile, row0, query0, lane);
        silu_and_gradient(s, dp, 1.0f);
        if (args.dq_sums) store_accumulators<T, kM>(ds_tile, row0, query0, dp, 1.0f, lane);
#pragma unroll
        for (int k = 0; k < kQueries / 16; ++k) {
          uint32_t a[2][4];
          to_fragments<T>(a, s, k);
          multiply_step<T>(dv, a, [&](int c, uint32_t(&b)[4]) {
            load_matrices_transposed(b, Wide::block(do_rows, pass * (kQueries / 16) + k, c));
          });
          to_fragments<T>(a, dp, k);
          multiply_step<T>(dk, a, [&](int c, uint32_t(&b)[4]) {
            load_matrices_transposed(b, Wide::block(q_rows, pass * (kQueries / 16) + k, c));
          });
        }
      }
      __syncthreads();
      if (next.tile() < 0) worker.fetch();

      if (args.dq_sums) {
        add_dq<Shape>(args, item, head, visit.tile(), false, ds_tile, k_tile, warp, lane);
      }
      stage ^= 1;
      visit = next;
    }

    // By way of the K and V stages, so that rows are written whole.
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    store_accumulators<T, kD>(k_tile, row0, 0, dk, query_key_scale(args), lane);
    store_accumulators<T, kD>(v_tile, row0, 0, dv, args.inverse_scale, lane);
    __syncwarp();
    store_gradient_rows<T, kD, 32, kD>(args.dk, item.k_begin + n0, head, args.head_dim, keys,
                                       k_tile, row0, 0, lane);
    store_gradient_rows<T, kD, 32, kD>(args.dv, item.k_begin + n0, head, args.head_dim, keys,
                                       v_tile, row0, 0, lane);
    __syncthreads();
    worker.advance();
  }
}

}  // namespace seqfuse::ops::attention::sm80
