// Backward for head_dim 128 and 256: like backward.cuh, with four or eight warps per tile of keys.
//
// All warps store P and dS in shared memory (backward_scores.cuh). Then half of them compute dV and
// half dK, in blocks of 64 x 64, and all compute dQ. These kernels are limited by shared-memory
// bandwidth, and larger blocks read less.
//
// One barrier per tile of queries: P and dS have two stages, so some warps may be in a tile's first
// products while others finish the last ones of the previous tile. Copies are awaited by arrival
// counts. If shared memory is short or the rows' grain is below 16, there are fewer stages and more
// barriers; with even less shared memory, as on SM 8.6, tiles are smaller too.
#pragma once

#include "ops/kernels/attention/sm80/backward_scores.cuh"

namespace seqfuse::ops::attention::sm80 {

// Stages of Q, of dO, and of P and dS: 1 or 2 each. Two of P and dS need a grain of 16.
struct Places {
  int q, dout, scores;
};

template <class T_, int kD_, bool kBias_, Places kPlaces_, bool kIsShort = false>
struct BackwardWideShape {
  using T = T_;
  static constexpr int kD = kD_, kN = (kD == 256 ? 64 : 128) / (kIsShort ? 2 : 1);
  static constexpr int kM = least(kN, kBackwardQueries);
  static constexpr bool kBias = kBias_;
  static constexpr Places kPlaces = kPlaces_;
  static constexpr int kStages = kPlaces.q;
  static constexpr bool kAligned = kPlaces.scores == 2;
  using MakeScores =
      Either<kD == 128, ScoresTogether<T, kD, kN, kM>, ScoresInHalves<T, kD, kN, kM>>;
  static constexpr int kWarps = MakeScores::kWarps, kThreads = 32 * kWarps, kBlocks = 1;
  // A warp computes 64 columns and this many rows of dK or dV.
  static constexpr int kGradRows = least(kN, 64), kRowBlocks = kN / kGradRows;
  static_assert(kWarps / 2 == kRowBlocks * kD / 64);
  static constexpr int kKeyTile = kN * kD * 2, kQueryTile = kM * kD * 2, kScores = kN * kM * 2;

  struct Shared {
    RowMask rows[kM];
    uint64_t arrived_q, arrived_dout;
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles = 2 * kKeyTile + (kPlaces.q + kPlaces.dout) * kQueryTile +
                                2 * kPlaces.scores * kScores + MakeScores::kSharedBytes;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
  // Key gradients are written through the Q stages.
  static_assert(kPlaces.q * kQueryTile >= kKeyTile);
  static_assert(kPlaces.dout * kQueryTile + 2 * kPlaces.scores * kScores >= kKeyTile);
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    backward_wide_kernel(const __grid_constant__ Arguments args) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN;
  constexpr int kThreads = Shape::kThreads;
  constexpr bool kBias = Shape::kBias;
  constexpr Places kPlaces = Shape::kPlaces;
  constexpr bool kLateDout = kPlaces.dout == 1, kLateQ = kPlaces.q == 1;
  constexpr bool kOnePlaceOfScores = kPlaces.scores == 1;
  using Wide = Tile<kD>;
  using Scores = Tile<kM>;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t k_tile = shared_address(memory), v_tile = k_tile + Shape::kKeyTile;
  const uint32_t q_tiles = v_tile + Shape::kKeyTile;
  const uint32_t do_tiles = q_tiles + kPlaces.q * Shape::kQueryTile;
  const uint32_t p_tiles = do_tiles + kPlaces.dout * Shape::kQueryTile;  // dS follows each P
  const uint32_t silu_gradients = p_tiles + 2 * kPlaces.scores * Shape::kScores;
  const uint32_t arrived_q = shared_address(&shared.arrived_q);
  const uint32_t arrived_dout = shared_address(&shared.arrived_dout);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool makes_dk = warp >= Shape::kWarps / 2;  // else dV
  // Warps w and w + 4 share a scheduler and get different halves of the keys.
  const int grad_row0 = (warp ^ (makes_dk ? 1 : 0)) % Shape::kRowBlocks * Shape::kGradRows;
  const int grad_column0 = warp % (Shape::kWarps / 2) / Shape::kRowBlocks * 64;
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  if (threadIdx.x == 0) {
    init_arrivals(arrived_q, 2 * kThreads);
    init_arrivals(arrived_dout, 2 * kThreads);
  }
  int stage = 0;  // stage of the query tiles; also the phase parity of their copies
  Worker worker(args.list, args.heads, &shared.work);  // its barrier covers the lines above, too
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  // Ask one piece further ahead than elsewhere: in a tile's last visit, where other kernels ask, no
  // register is free.
  worker.ask();
  const auto load = [&](auto loader, uint32_t tile, const HeadsView& view, int rows) {
    if constexpr (Shape::kAligned) {
      loader.load_aligned(tile, view, 0, rows, args.head_dim);
    } else {
      loader.load(tile, view, 0, rows, args.head_dim);
    }
  };
  const auto load_keys = [&] {
    const WorkItem& item = worker.item();
    const int n0 = item.tile * kN, keys = item.keys - n0;
    using Loader = TileLoader<kN, kD, kThreads>;
    load(Loader(args.k, item.k_begin + n0, worker.head()), k_tile, args.k, keys);
    load(Loader(args.v, item.k_begin + n0, worker.head()), v_tile, args.v, keys);
    if constexpr (kBias) shared.bias.template load_times<kThreads>(args.bias, item, n0, 0);
  };
  if (!worker.done()) load_keys();
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), n0 = item.tile * kN;
    worker.fetch();
    worker.ask();

    const int shift = item.keys - item.queries;  // position of the first query among the keys
    QueryTiles<kN, kM> tiles;
    using Visit = typename QueryTiles<kN, kM>::Visit;
    const auto fill_q = [&](const Visit& to, int at) {
      const int m0 = to.tile() * kM;
      if (!to.covered() && threadIdx.x < kM) {
        const int row = min(m0 + static_cast<int>(threadIdx.x), item.queries - 1);
        shared.rows[threadIdx.x] = row_mask(args.mask, item, shift + row);
      }
      load(TileLoader<kM, kD, kThreads>(args.q, item.q_begin + m0, head),
           q_tiles + (kLateQ ? 0 : at) * Shape::kQueryTile, args.q, item.queries - m0);
      if constexpr (kBias) {
        shared.bias.template load_times_after<kThreads>(args.bias, item, shift + m0, at);
        shared.bias.template load_position<kThreads>(args.bias, shift + m0, n0, at);
      }
      arrive_with_copies(arrived_q);
    };
    const auto fill_dout = [&](const Visit& to, int at) {
      const int m0 = to.tile() * kM;
      load(TileLoader<kM, kD, kThreads>(args.dout, item.q_begin + m0, head),
           do_tiles + (kLateDout ? 0 : at) * Shape::kQueryTile, args.dout, item.queries - m0);
      arrive_with_copies(arrived_dout);
    };

    Accumulators<Shape::kGradRows, 64> grad;
    grad.clear();
    Visit before, visit = tiles.next(args.tile_masks, item);
    if (visit.tile() >= 0) {
      fill_q(visit, stage);
      fill_dout(visit, stage);
    }
    const auto make_scores = [&](int at, int of_warp, int of_lane, auto enter) {
      const uint32_t p_tile = p_tiles + (kOnePlaceOfScores ? 0 : at) * 2 * Shape::kScores;
      Shape::MakeScores::make(
          {k_tile, v_tile, q_tiles + (kLateQ ? 0 : at) * Shape::kQueryTile,
           do_tiles + (kLateDout ? 0 : at) * Shape::kQueryTile, p_tile, p_tile + Shape::kScores,
           silu_gradients, arrived_q, arrived_dout, at, visit.half()},
          [&](auto& s, int row0, int query0) {
            if constexpr (kBias)
              add_bias<true>(s, shared.bias, args, stage, 0, stage, row0, query0, of_lane);
            s.scale(scale);
            if (!visit.covered())
              hide_transposed(s, kHiddenHalf, shared.rows, query0, n0 + row0, of_lane);
          },
          enter, of_warp, of_lane);
    };
    const auto add_dq_before = [&](int at, int of_warp, int of_lane) {
      if (before.tile() < 0 || !args.dq_sums) return;
      const uint32_t p_tile = p_tiles + (kOnePlaceOfScores ? 0 : at ^ 1) * 2 * Shape::kScores;
      add_dq<Shape>(args, item, head, before.tile(), before.half(), p_tile + Shape::kScores, k_tile,
                    of_warp, of_lane);
    };
    while (true) {
      // Scores of this visit and dQ of the previous one. If possible, the two warps of a scheduler,
      // w and w + 4, do them in opposite order, so that one multiplies while the other computes
      // SiLU.
      if constexpr (kOnePlaceOfScores) {
        const auto add_dq_now = [&] {
          int of_lane = static_cast<int>(threadIdx.x) % 32, of_warp = threadIdx.x / 32;  // as below
          asm volatile("" : "+r"(of_lane), "+r"(of_warp));
          add_dq_before(stage, of_warp, of_lane);
        };
        const bool late = Shape::MakeScores::kCompleteAtEnter && !makes_dk && visit.tile() >= 0;
        if (!late) add_dq_now();
        if (visit.tile() >= 0) {
          make_scores(stage, warp, lane, [&] {
            if (late) add_dq_now();
            __syncthreads();  // the stage is free to be written
          });
        }
      } else {
#pragma unroll 1
        for (int step = 0; step < 2; ++step) {
          // Recomputed, so that addresses do not occupy registers meanwhile.
          int of_lane = static_cast<int>(threadIdx.x) % 32, of_warp = threadIdx.x / 32, at = stage;
          asm volatile("" : "+r"(of_lane), "+r"(of_warp), "+r"(at));
          if (step != static_cast<int>(makes_dk)) {
            add_dq_before(at, of_warp, of_lane);
          } else if (visit.tile() >= 0) {
            make_scores(at, of_warp, of_lane, [] {});
          }
        }
      }
      if (visit.tile() < 0) break;
      const Visit next = tiles.next(args.tile_masks, item);
      __syncthreads();
      if (next.tile() >= 0) {
        if constexpr (!kLateQ) fill_q(next, stage ^ 1);
        if constexpr (!kLateDout) fill_dout(next, stage ^ 1);
      }

      if (!visit.half() || grad_row0 == 0) {
        const uint32_t p_tile = p_tiles + (kOnePlaceOfScores ? 0 : stage) * 2 * Shape::kScores;
        int of_lane = static_cast<int>(threadIdx.x) % 32;  // as above
        asm volatile("" : "+r"(of_lane));
        const uint32_t a_at = Scores::rows_first(
            p_tile + makes_dk * Shape::kScores + grad_row0 * Scores::kRowBytes, of_lane);
        const uint32_t b_at =
            Wide::rows_first(makes_dk ? q_tiles + (kLateQ ? 0 : stage) * Shape::kQueryTile
                                      : do_tiles + (kLateDout ? 0 : stage) * Shape::kQueryTile,
                             of_lane);
        const uint32_t b_columns =
            Wide::block(b_at, 0, 0) + grad_column0 * 2;  // 64 columns of 2 bytes
#pragma unroll
        for (int k = 0; k < kM / 16; ++k) {
          uint32_t a[Shape::kGradRows / 16][4];
#pragma unroll
          for (int r = 0; r < Shape::kGradRows / 16; ++r)
            load_matrices(a[r], Scores::block(a_at, r, k));
          multiply_step<T>(grad, a, [&](int c, uint32_t(&b)[4]) {
            load_matrices_transposed(b, Wide::block(b_columns, k, c));
          });
        }
      }
      if constexpr (kLateQ || kLateDout) {
        if (next.tile() >= 0) {
          __syncthreads();
          if constexpr (kLateDout) fill_dout(next, stage ^ 1);
          if constexpr (kLateQ) fill_q(next, stage ^ 1);
        }
      }
      before = visit;
      visit = next;
      stage ^= 1;
    }

    commit_copies();
    wait_copies<0>();
    __syncthreads();
    // Copy K and V of the next piece while writing this one's gradients. They go through the Q
    // stages and the memory after them, so that rows are written whole.
    worker.advance();
    if (!worker.done()) load_keys();
    const WorkItem& last = worker.last_item();
    const int last_n0 = last.tile * kN;
    const uint32_t grad_tile = makes_dk ? q_tiles : do_tiles;
    store_accumulators<T, kD>(grad_tile, grad_row0, grad_column0, grad,
                              makes_dk ? query_key_scale(args) : args.inverse_scale, lane);
    __syncwarp();
    store_gradient_rows<T, kD, Shape::kGradRows, 64>(
        makes_dk ? args.dk : args.dv, last.k_begin + last_n0, worker.last_head(), args.head_dim,
        min(kN, last.keys - last_n0), grad_tile, grad_row0, grad_column0, lane);
    __syncthreads();
  }
}

}  // namespace seqfuse::ops::attention::sm80
