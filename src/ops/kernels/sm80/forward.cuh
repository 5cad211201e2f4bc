// Forward: a block takes a tile of queries and walks over the tiles of keys that it sees.
//
// A warp has 32 queries, so that each fragment of K and V that it reads serves two products: with
// 16, shared memory would be what limits the speed. For head_dim 256 the sums of 32 queries do not
// fit in the registers of a warp: there two warps share 32 queries, each with half of the keys in
// the first product and half of the columns in the second.
//
// K and V take turns in a ring of tiles, K0 V0 K1 V1 ..., which is filled kStages - 1 tiles ahead.
//
// With four stages, two of each, the second product lags one tile behind the first, so that SiLU of
// one tile runs beside the product of the one before, and one barrier a tile is enough.
#pragma once

#include "ops/kernels/sm80/bias.cuh"
#include "ops/kernels/sm80/mask.cuh"

namespace seqfuse::ops::sm80 {

template <int kD_, bool kBias_, int kStages_ = kD_ == 256 ? 2 : 3>
struct ForwardShape {
  static constexpr int kD = kD_, kM = 128, kN = 64;
  static constexpr bool kBias = kBias_;
  static constexpr int kSplit = kD == 256 ? 2 : 1;
  static constexpr int kStages = kStages_;
  static constexpr bool kLagging = kStages == 4;
  static constexpr bool kKeepQ = kD <= 64 && !kBias;  // Q's fragments in registers
  static constexpr int kThreads = 128 * kSplit;
  static constexpr int kBlocks = kD == 256 ? 1 : kD == 32 && !kBias ? 3 : 2;  // of an SM
  static constexpr int kTile = kM * kD * 2, kRingTile = kN * kD * 2;
  static constexpr int kP = kSplit > 1 ? kM* kN * 2 : 0;
  static constexpr int kPs = kLagging ? 2 : 1;

  struct Shared {
    RowMask rows[kM];
    TileMask warps[kM / 32];
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles = kTile + kStages * kRingTile + kPs * kP;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

// Scores to zero where the mask hides them. Accumulators of queries from row, keys from j.
template <int kRows, int kColumns>
__device__ __forceinline__ void hide(Accumulators<kRows, kColumns>& s, const RowMask* rows, int row,
                                     int j, int lane) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowMask m = rows[row + 16 * r + 8 * half + (lane >> 2)];
#pragma unroll
      for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (!m.sees(j + 8 * c + 2 * (lane & 3) + e)) s.v[r][c][2 * half + e] = 0;
        }
      }
    }
  }
}

// silu(2 h)
__device__ __forceinline__ float silu_of_half(float h) {
  return fmaf(h, tanh_approximate(h), h);
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    forward_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN, kSplit = Shape::kSplit;
  constexpr int kStages = Shape::kStages, kThreads = Shape::kThreads;
  constexpr bool kBias = Shape::kBias;
  constexpr int kKeys = kN / kSplit;     // of a warp, in the first product
  constexpr int kColumns = kD / kSplit;  // of a warp, in the second
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t q_tile = shared_address(memory), ring = q_tile + Shape::kTile;
  const uint32_t p_tile = ring + kStages * Shape::kRingTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp % 4 * 32, part = warp / 4;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t k_lane = Tile<kD>::columns_first(ring + part * kKeys * Tile<kD>::kRowBytes, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring, lane);
  const uint32_t p_lane = Tile<kN>::rows_first(p_tile + row0 * Tile<kN>::kRowBytes, lane);
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  Worker worker(args.list, args.heads, &shared.work);
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), m0 = item.tile * kM;
    const int rows = min(kM, item.queries - m0);
    const int i0 = item.keys - item.queries + m0;  // the first query's place among the keys
    TileLoader<kM, kD, kThreads>(args.q, item.q_begin + m0, head)
        .load(q_tile, args.q, 0, rows, args.head_dim);
    if constexpr (kBias) shared.bias.template load_times_after<kThreads>(args.bias, item, i0, 0);
    if (kM == kThreads || threadIdx.x < kM) {
      const RowMask m =
          row_mask(args.mask, item, i0 + min(static_cast<int>(threadIdx.x), rows - 1));
      shared.rows[threadIdx.x] = m;
      const TileMask all = combine_lanes(m);
      if (lane == 0) shared.warps[warp] = all;
    }
    __syncthreads();
    const TileMask mask = combine(combine(shared.warps[0], shared.warps[1]),
                                  combine(shared.warps[2], shared.warps[3]));
    const KeyTiles<kN> tiles(mask, item.keys);

    // The next piece is asked for two tiles before the last.
    if (tiles.count == 0) {
      worker.ask();
      worker.fetch();
    }
    const auto next_piece = [&](int t) {
      if (t == max(0, tiles.count - 3)) worker.ask();
      if (t == tiles.count - 1) worker.fetch();
    };
    Accumulators<32, kColumns> out;
    out.clear();
    uint32_t q[Shape::kKeepQ ? kD / 16 : 1][2][4];
    using Loader = TileLoader<kN, kD, kThreads>;
    const Loader keys(args.k, item.k_begin, head), values(args.v, item.k_begin, head);
    const auto load = [&](int t, auto is_v, int to) {
      if (t >= tiles.count) return;
      const int j = tiles[t] * kN;
      if constexpr (is_v()) {
        values.load(ring + to * Shape::kRingTile, args.v, j, tiles.keys - j, args.head_dim);
      } else {
        keys.load(ring + to * Shape::kRingTile, args.k, j, tiles.keys - j, args.head_dim);
      }
      if constexpr (kBias) {
        if (!is_v()) {
          shared.bias.template load_times<kThreads>(args.bias, item, j, t & 1);
          shared.bias.template load_position<kThreads>(args.bias, i0, j, t & 1);
        }
      }
    };
    int filling = 0;  // the stage that is filled next
    const auto fill = [&](int t, auto is_v) {
      load(t, is_v, filling);
      commit_copies();
      filling = filling + 1 == kStages ? 0 : filling + 1;
    };
    // alpha Q K' + bias of tile t, hidden ones 0.
    const auto scores = [&](Accumulators<32, kKeys>& s, uint32_t k_at, int t, bool covered) {
      s.clear();
#pragma unroll
      for (int d = 0; d < kD / 16; ++d) {
        const auto fetch = [&](int c, uint32_t(&b)[4]) {
          load_matrices(b, Tile<kD>::block(k_at, c, d));
        };
        if constexpr (Shape::kKeepQ) {
          multiply_step<T>(s, q[d], fetch);
        } else {
          uint32_t a[2][4];
          load_matrices(a[0], Tile<kD>::block(q_lane, 0, d));
          load_matrices(a[1], Tile<kD>::block(q_lane, 1, d));
          multiply_step<T>(s, a, fetch);
        }
      }
      if constexpr (kBias)
        add_bias<false>(s, shared.bias, args, 0, t & 1, t & 1, row0, part * kKeys, lane);
      if (!covered) hide(s, shared.rows, row0, tiles[t] * kN + part * kKeys, lane);
    };
    const auto add_values = [&](const uint32_t(&a)[2][4], uint32_t v_at, int k) {
      multiply_step<T>(out, a, [&](int c, uint32_t(&b)[4]) {
        load_matrices_transposed(b, Tile<kD>::block(v_at, k, part * (kColumns / 16) + c));
      });
    };
    constexpr std::true_type kYes, kValuesTile;
    constexpr std::false_type kNo, kKeysTile;
    if constexpr (Shape::kLagging) {
      // Stages 0 and 1 are K's, 2 and 3 V's. Runs the scores of tile t, the values of tile t - 1.
      const auto run = [&](int t, auto with_scores, auto with_values, bool covered) {
        constexpr bool kWithScores = decltype(with_scores)::value;
        Accumulators<32, kKeys> s;
        if constexpr (kWithScores) scores(s, k_lane + (t & 1) * Shape::kRingTile, t, covered);
        load(t + 1, kKeysTile, (t + 1) & 1);
        load(t, kValuesTile, 2 + (t & 1));
        commit_copies();
        const uint32_t v_at = v_lane + (2 + (~t & 1)) * Shape::kRingTile;
        const uint32_t p_at = p_lane + (~t & 1) * Shape::kP, p_to = p_tile + (t & 1) * Shape::kP;
#pragma unroll
        for (int k = 0; k < kN / 16; ++k) {
          if constexpr (decltype(with_values)::value) {
            uint32_t a[2][4];
            load_matrices(a[0], Tile<kN>::block(p_at, 0, k));
            load_matrices(a[1], Tile<kN>::block(p_at, 1, k));
            add_values(a, v_at, k);
          }
          if constexpr (kWithScores) {
            // A quarter of the tile: 16 rows, 16 columns.
            Accumulators<16, 16> x;
#pragma unroll
            for (int c = 0; c < 2; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                x.v[0][c][e] = silu_of_half(s.v[k / 2][k % 2 * 2 + c][e] * scale);
            store_accumulators<T, kN>(p_to, row0 + k / 2 * 16, part * kKeys + k % 2 * 16, x, 1.0f,
                                      lane);
          }
        }
      };
      static_assert(!Shape::kLagging || (kKeys == 32 && kN == 64));
      load(0, kKeysTile, 0);
      commit_copies();
      bool before = false;  // whether tile t - 1 has values for this warp
      for (int t = 0; t <= tiles.count; ++t) {
        wait_copies<0>();
        __syncthreads();
        if (t < tiles.count) next_piece(t);
        const int j0 = t < tiles.count ? tiles[t] * kN : 0;
        const bool covered = tiles.covered(t);
        const bool now =
            t < tiles.count && (covered || shared.warps[warp % 4].touches(j0, j0 + kN));
        if (now && before) {
          run(t, kYes, kYes, covered);
        } else if (now) {
          run(t, kYes, kNo, covered);
        } else if (before) {
          run(t, kNo, kYes, covered);
        } else {
          run(t, kNo, kNo, covered);
        }
        before = now;
      }
    } else {
      fill(0, kKeysTile);
      if constexpr (kStages == 3) fill(0, kValuesTile);
      int reading = 0;
      for (int t = 0; t < tiles.count; ++t) {
        wait_copies<kStages - 2>();
        __syncthreads();
        if constexpr (kStages == 2) fill(t, kValuesTile);
        if constexpr (Shape::kKeepQ) {
          if (t == 0) {
#pragma unroll
            for (int d = 0; d < kD / 16; ++d) {
              load_matrices(q[d][0], Tile<kD>::block(q_lane, 0, d));
              load_matrices(q[d][1], Tile<kD>::block(q_lane, 1, d));
            }
          }
        }
        next_piece(t);
        const bool covered = tiles.covered(t);
        Accumulators<32, kKeys> s;
        scores(s, k_lane + reading * Shape::kRingTile, t, covered);
        if constexpr (kSplit > 1) {
#pragma unroll
          for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int c = 0; c < kKeys / 8; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e) s.v[r][c][e] = silu_of_half(s.v[r][c][e] * scale);
          store_accumulators<T, kN>(p_tile, row0, part * kKeys, s, 1.0f, lane);
        }
        reading = reading + 1 == kStages ? 0 : reading + 1;
        // Only now, where there is time: the products that were begun run beside it.
        if constexpr (kStages == 3) fill(t + 1, kKeysTile);
        wait_copies<kStages - 2>();
        __syncthreads();
        if constexpr (kStages == 3) {
          fill(t + 1, kValuesTile);
        } else {
          fill(t + 1, kKeysTile);
        }
        const uint32_t v_at = v_lane + reading * Shape::kRingTile;
#pragma unroll
        for (int k = 0; k < kN / 16; ++k) {
          uint32_t a[2][4];
          if constexpr (kSplit > 1) {
            load_matrices(a[0], Tile<kN>::block(p_lane, 0, k));
            load_matrices(a[1], Tile<kN>::block(p_lane, 1, k));
          } else {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float* x = &s.v[r][2 * k + e / 2][e % 2 * 2];
                a[r][e] = pack<T>(silu_of_half(x[0] * scale), silu_of_half(x[1] * scale));
              }
            }
          }
          add_values(a, v_at, k);
        }
        reading = reading + 1 == kStages ? 0 : reading + 1;
      }
    }

    // Through the place of Q, which nobody reads any more, so that rows are written whole.
    // From shared memory again, rather than in registers all the while.
    const WorkItem& last = worker.item();
    const int last_m0 = last.tile * kM;
    commit_copies();
    wait_copies<0>();
    if (tiles.count == 0) __syncthreads();
    store_accumulators<T, kD>(q_tile, row0, part * kColumns, out, args.inverse_scale, lane);
    __syncwarp();
    store_rows<T, kD, 32, kColumns>(
        RowsView(args.out, last.q_begin + last_m0, worker.head(), args.head_dim), nullptr,
        min(kM, last.queries - last_m0), q_tile, row0, part * kColumns, lane);
    __syncthreads();
    worker.advance();
  }
}

}  // namespace seqfuse::ops::sm80
