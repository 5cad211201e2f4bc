// Backward: a block takes a tile of keys and walks over the tiles of queries that see it.
//
//   S = K Q'  dP = V dO'  P = silu(S)  dS = dP silu'(S)  dV += P dO  dK += dS Q  dQ += dS' K
//
// Scores have keys as rows, 32 for each warp. Up to head_dim 64 a warp has all of a tile's queries,
// so that P and dS go from accumulators to fragments without leaving the registers; dS goes to
// shared memory for dQ alone. Wider heads share the 32 keys among kSplit warps, which divide the
// queries in the first two products, the columns in the others, and exchange P and dS.
//
// dQ is summed in global memory by float atomics, in an order that makes them whole cache lines.
#pragma once

#include "ops/kernels/sm80/bias.cuh"
#include "ops/kernels/sm80/launch.h"
#include "ops/kernels/sm80/mask.cuh"

namespace seqfuse::ops::sm80 {

template <int kD_, bool kBias_, int kStages_>
struct BackwardShape {
  static constexpr int kD = kD_, kStages = kStages_, kM = kBackwardQueries, kN = backward_keys(kD);
  static constexpr bool kBias = kBias_;
  static constexpr int kKeyGroups = kN / 32;
  static constexpr int kSplit = kD <= 64 ? 1 : kD / 64;
  static constexpr int kWarps = kKeyGroups * kSplit, kThreads = 32 * kWarps;
  static constexpr int kQueries = kSplit == 1 ? 32 : kM / kSplit;  // of a warp at a time
  static constexpr int kPasses = kM / (kSplit * kQueries);
  static constexpr int kBlocks = kSplit == 1 ? 2 : 1;
  static constexpr int kKeyTile = kN * kD * 2, kQueryTile = kM * kD * 2, kScores = kN * kM * 2;

  struct Shared {
    RowMask rows[kM];
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles =
      2 * kKeyTile + 2 * kStages * kQueryTile + (kSplit > 1 ? 2 : 1) * kScores;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

// The tiles of queries that see some keys of a tile of kN. Each warp tests 32 at a time; all else
// is in shared memory, since there are no registers to spare.
template <int kN>
class QueryTiles {
 public:
  struct Visit {
    int tile;  // -1: no more
    bool covered;
  };

  __device__ __forceinline__ Visit next(const TileMask* masks, const WorkItem& item) {
    while (visible_ == 0) {
      base_ += 32;
      const int count = (item.queries + kBackwardQueries - 1) / kBackwardQueries;
      if (base_ >= count) return {-1, true};
      const int tile = base_ + static_cast<int>(threadIdx.x % 32);
      bool visible = false, covered = false;
      if (tile < count) {
        const TileMask mask =
            masks[tile_base(item.q_begin, item.sequence, kBackwardQueries) + tile];
        const int begin = item.tile * kN, end = min(begin + kN, item.keys);
        visible = mask.touches(begin, end);
        covered = mask.covers(begin, end, item.keys);
      }
      visible_ = __ballot_sync(0xffffffffu, visible);
      covered_ = __ballot_sync(0xffffffffu, covered);
    }
    const int bit = __ffs(visible_) - 1;
    visible_ &= visible_ - 1;
    return {base_ + bit, (covered_ >> bit & 1) != 0};
  }

 private:
  int base_ = -32;
  unsigned visible_ = 0, covered_ = 0;
};

// Accumulators of keys from j, queries from row: to a value where the mask hides them.
template <int kRows, int kColumns>
__device__ __forceinline__ void hide_transposed(Accumulators<kRows, kColumns>& x, float value,
                                                const RowMask* rows, int row, int j, int lane) {
#pragma unroll
  for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const RowMask m = rows[row + 8 * c + 2 * (lane & 3) + e];
#pragma unroll
      for (int r = 0; r < kRows / 8; ++r)
        if (!m.sees(j + 8 * r + (lane >> 2))) x.v[r / 2][c][r % 2 * 2 + e] = value;
    }
  }
}

// Half a score that is hidden: its SiLU and silu' are 0 to the bit, since its tanh is -1.
constexpr float kHiddenHalf = -1e30f;

// silu(2 h), and h becomes silu'(2 h).
__device__ __forceinline__ float silu_and_gradient(float& h) {
  const float t = tanh_approximate(h), silu = fmaf(h, t, h);
  h = fmaf(silu, fmaf(t, -0.5f, 0.5f), fmaf(t, 0.5f, 0.5f));
  return silu;
}

// s becomes silu(2 s scale), dp becomes dp silu'(2 s scale).
template <int kRows, int kColumns>
__device__ __forceinline__ void silu_and_gradient(Accumulators<kRows, kColumns>& s,
                                                  Accumulators<kRows, kColumns>& dp, float scale) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float h = s.v[r][c][e] * scale;
        s.v[r][c][e] = silu_and_gradient(h);
        dp.v[r][c][e] *= h;
      }
    }
  }
}

// Fragments of A from the accumulators of 16 columns.
template <class T, int kRows, int kColumns>
__device__ __forceinline__ void to_fragments(uint32_t (&a)[kRows / 16][4],
                                             const Accumulators<kRows, kColumns>& x, int k) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* v = &x.v[r][2 * k + e / 2][e % 2 * 2];
      a[r][e] = pack<T>(v[0], v[1]);
    }
  }
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    backward_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN, kSplit = Shape::kSplit;
  constexpr int kThreads = Shape::kThreads, kQueries = Shape::kQueries;
  constexpr int kColumns = kD / kSplit;  // of a warp's dk and dv
  constexpr int kDqColumns = 2 * kD / Shape::kWarps;
  constexpr bool kBias = Shape::kBias, kExchange = kSplit > 1;
  using Wide = Tile<kD>;
  using Scores = Tile<kM>;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t k_tile = shared_address(memory), v_tile = k_tile + Shape::kKeyTile;
  const uint32_t q_tiles = v_tile + Shape::kKeyTile;
  const uint32_t do_tiles = q_tiles + Shape::kStages * Shape::kQueryTile;
  const uint32_t ds_tile = do_tiles + Shape::kStages * Shape::kQueryTile;
  const uint32_t p_tile = ds_tile + Shape::kScores;  // with kExchange
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp % Shape::kKeyGroups * 32, part = warp / Shape::kKeyGroups;
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  Worker worker(args.list, args.heads, &shared.work);
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  // Narrow heads ask for the next piece in the last visit. Wide ones, whose registers are all taken
  // there, do before the first, one piece ahead.
  if constexpr (kExchange) worker.ask();
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), n0 = item.tile * kN;
    const int keys = min(kN, item.keys - n0);
    TileLoader<kN, kD, kThreads>(args.k, item.k_begin + n0, head)
        .load(k_tile, args.k, 0, keys, args.head_dim);
    TileLoader<kN, kD, kThreads>(args.v, item.k_begin + n0, head)
        .load(v_tile, args.v, 0, keys, args.head_dim);
    if constexpr (kBias) shared.bias.template load_times<kThreads>(args.bias, item, n0, 0);

    if constexpr (kExchange) {
      worker.fetch();
      worker.ask();
    }
    const int shift = item.keys - item.queries;  // the first query's place among the keys
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

    Accumulators<32, kColumns> dk, dv;
    dk.clear();
    dv.clear();
    typename QueryTiles<kN>::Visit visit = tiles.next(args.tile_masks, item);
    fill(visit.tile, 0);
    if (!kExchange && visit.tile < 0) {
      worker.ask();
      worker.fetch();
    }
    int stage = 0;
    while (visit.tile >= 0) {
      const auto next = tiles.next(args.tile_masks, item);
      if (!kExchange && next.tile < 0) worker.ask();
      if (!visit.covered && threadIdx.x < kM) {
        const int row = min(visit.tile * kM + static_cast<int>(threadIdx.x), item.queries - 1);
        shared.rows[threadIdx.x] = row_mask(args.mask, item, shift + row);
      }
      wait_copies<0>();
      __syncthreads();
      if constexpr (Shape::kStages == 2) fill(next.tile, stage ^ 1);
      const uint32_t q_tile = q_tiles + stage * Shape::kQueryTile;
      const uint32_t do_tile = do_tiles + stage * Shape::kQueryTile;
      const uint32_t q_rows = Wide::rows_first(q_tile, lane);
      const uint32_t do_rows = Wide::rows_first(do_tile, lane);

#pragma unroll
      for (int pass = 0; pass < Shape::kPasses; ++pass) {
        const int query0 = (part + pass) * kQueries;
        Accumulators<32, kQueries> s, dp;
        const auto scores = [&](Accumulators<32, kQueries>& to, uint32_t keys_tile,
                                uint32_t queries_tile, auto&& meanwhile) {
          const uint32_t a_at = Wide::rows_first(keys_tile + row0 * Wide::kRowBytes, lane);
          const uint32_t b_at = Wide::columns_first(queries_tile + query0 * Wide::kRowBytes, lane);
          to.clear();
#pragma unroll
          for (int d = 0; d < kD / 16; ++d) {
            uint32_t a[2][4];
            load_matrices(a[0], Wide::block(a_at, 0, d));
            load_matrices(a[1], Wide::block(a_at, 1, d));
            multiply_step<T>(
                to, a, [&](int c, uint32_t(&b)[4]) { load_matrices(b, Wide::block(b_at, c, d)); });
            meanwhile(d);
          }
        };
        scores(s, k_tile, q_tile, [](int) {});
        if constexpr (kBias)
          add_bias<true>(s, shared.bias, args, stage, 0, stage, row0, query0, lane);
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int c = 0; c < kQueries / 8; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) s.v[r][c][e] *= scale;
        if (!visit.covered) hide_transposed(s, kHiddenHalf, shared.rows, query0, n0 + row0, lane);
        if constexpr (kExchange) {
          // P and silu' beside the products of dP: 16 x 8 scores at a time.
          constexpr int kBlocksOfS = kQueries / 4, kEvery = kD / 16 / kBlocksOfS;
          scores(dp, v_tile, do_tile, [&](int d) {
            if (d % kEvery != 0) return;
            const int r = d / kEvery / (kQueries / 8), c = d / kEvery % (kQueries / 8);
            Accumulators<16, 8> p;
#pragma unroll
            for (int e = 0; e < 4; ++e) p.v[0][0][e] = silu_and_gradient(s.v[r][c][e]);
            store_accumulators<T, kM>(p_tile, row0 + 16 * r, query0 + 8 * c, p, 1.0f, lane);
          });
#pragma unroll
          for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int c = 0; c < kQueries / 8; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e) dp.v[r][c][e] *= s.v[r][c][e];
        } else {
          scores(dp, v_tile, do_tile, [](int) {});
          silu_and_gradient(s, dp, 1.0f);
        }
        if (kExchange || args.dq_sums)
          store_accumulators<T, kM>(ds_tile, row0, query0, dp, 1.0f, lane);
        if constexpr (!kExchange) {
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
      }
      __syncthreads();
      if (!kExchange && next.tile < 0) worker.fetch();

      if constexpr (kExchange) {
        const uint32_t p_rows = Scores::rows_first(p_tile + row0 * Scores::kRowBytes, lane);
        const uint32_t ds_rows = Scores::rows_first(ds_tile + row0 * Scores::kRowBytes, lane);
        const auto add = [&](Accumulators<32, kColumns>& to, uint32_t a_at, uint32_t b_at) {
#pragma unroll
          for (int k = 0; k < kM / 16; ++k) {
            uint32_t a[2][4];
            load_matrices(a[0], Scores::block(a_at, 0, k));
            load_matrices(a[1], Scores::block(a_at, 1, k));
            multiply_step<T>(to, a, [&](int c, uint32_t(&b)[4]) {
              load_matrices_transposed(b, Wide::block(b_at, k, part * (kColumns / 16) + c));
            });
          }
        };
        add(dv, p_rows, do_rows);
        add(dk, ds_rows, q_rows);
      }
      if (args.dq_sums) {
        const int group = warp % 2, columns = warp / 2;
        const uint32_t ds_columns = Scores::columns_first(ds_tile, lane);
        const uint32_t k_rows = Wide::rows_first(k_tile, lane);
        Accumulators<32, kDqColumns> dq;
        dq.clear();
#pragma unroll 4
        for (int k = 0; k < kN / 16; ++k) {
          uint32_t a[2][4];
          load_matrices_transposed(a[0], Scores::block(ds_columns, k, 2 * group));
          load_matrices_transposed(a[1], Scores::block(ds_columns, k, 2 * group + 1));
          multiply_step<T>(dq, a, [&](int c, uint32_t(&b)[4]) {
            load_matrices_transposed(b, Wide::block(k_rows, k, columns * (kDqColumns / 16) + c));
          });
        }
        float* to =
            args.dq_sums +
            ((tile_base(item.q_begin, item.sequence, kM) + visit.tile) * args.heads + head) *
                (kM * kD) +
            warp * (32 * kDqColumns) + lane * 4;
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int c = 0; c < kDqColumns / 8; ++c)
            add_to_global(to + (r * (kDqColumns / 8) + c) * 128, dq.v[r][c]);
      }
      if constexpr (Shape::kStages == 1) {
        __syncthreads();
        fill(next.tile, 0);
      } else {
        stage ^= 1;
      }
      visit = next;
    }

    // Through the places of K and V, so that rows are written whole.
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    store_accumulators<T, kD>(k_tile, row0, part * kColumns, dk, args.alpha * args.inverse_scale,
                              lane);
    store_accumulators<T, kD>(v_tile, row0, part * kColumns, dv, args.inverse_scale, lane);
    __syncwarp();
    store_gradient_rows<T, kD, 32, kColumns>(args.dk, args.pre_k, item.k_begin + n0, head,
                                             args.head_dim, keys, k_tile, row0, part * kColumns,
                                             lane);
    store_gradient_rows<T, kD, 32, kColumns>(args.dv, args.pre_v, item.k_begin + n0, head,
                                             args.head_dim, keys, v_tile, row0, part * kColumns,
                                             lane);
    __syncthreads();
    worker.advance();
  }
}

// dq from its sums. A block for each (tile, head, sequence); threads as in backward_kernel.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    finish_dq_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kDqColumns = 2 * kD / Shape::kWarps;
  __shared__ __align__(1024) char memory[kM * kD * 2];
  const int b = blockIdx.z, head = blockIdx.y, m0 = blockIdx.x * kM;
  const int64_t begin = offset_at(args.q_offsets, args.int32_offsets, b);
  const int queries =
      static_cast<int>(offset_at(args.q_offsets, args.int32_offsets, b + 1) - begin);
  if (m0 >= queries) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* from = args.dq_sums +
                      ((tile_base(begin, b, kM) + blockIdx.x) * args.heads + head) * (kM * kD) +
                      warp * (32 * kDqColumns) + lane * 4;
  Accumulators<32, kDqColumns> dq;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < kDqColumns / 8; ++c) {
      const float4 v = *reinterpret_cast<const float4*>(from + (r * (kDqColumns / 8) + c) * 128);
      dq.v[r][c][0] = v.x;
      dq.v[r][c][1] = v.y;
      dq.v[r][c][2] = v.z;
      dq.v[r][c][3] = v.w;
    }
  }
  const uint32_t tile = shared_address(memory);
  const int row0 = warp % 2 * 32, column0 = warp / 2 * kDqColumns;
  store_accumulators<T, kD>(tile, row0, column0, dq, args.alpha * args.inverse_scale, lane);
  __syncwarp();
  store_gradient_rows<T, kD, 32, kDqColumns>(args.dq, args.pre_q, begin + m0, head, args.head_dim,
                                             queries - m0, tile, row0, column0, lane);
}

}  // namespace seqfuse::ops::sm80
