// Forward: a block takes a tile of queries and loops over the tiles of keys that it sees.
//
// A warp has 32 queries, so each fragment of K and V that it reads serves two products; with 16,
// shared memory would limit the speed. For head_dim 256 the accumulators of 32 queries do not fit
// in a warp's registers: two warps share 32 queries, each with half of the keys in the first
// product and half of the columns in the second.
//
// With less shared memory than on SM 8.0, tiles for head_dim 256 are half as large.
//
// K and V alternate in a ring of stages, K0 V0 K1 V1 ..., filled kStages - 1 tiles ahead. The most
// common cases have kernels of their own (forward_lagging.cuh, forward_pairs.cuh): head_dim 256,
// and 128 where shared memory fits four tiles for each of an SM's two blocks.
#pragma once

#include "ops/kernels/attention/sm80/bias.cuh"
#include "ops/kernels/attention/sm80/forward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kD_, bool kBias_, bool kIsShort = false>
struct ForwardShape {
  static constexpr int kD = kD_, kM = kD == 256 && kIsShort ? 64 : 128;
  static constexpr int kN = kM / 2;
  static constexpr bool kBias = kBias_;
  static constexpr int kSplit = kD == 256 ? 2 : 1;
  static constexpr int kStages = kD == 256 || (kD == 128 && kBias) ? 2 : 3;
  static constexpr bool kKeepQ = kD <= 64 && !kBias;  // keep Q's fragments in registers
  static constexpr int kRowGroups = kM / 32, kThreads = 32 * kRowGroups * kSplit;
  static constexpr int kBlocks = kD == 256 ? 1 : kD == 32 && !kBias ? 3 : 2;  // per SM
  static constexpr int kTile = kM * kD * 2, kRingTile = kN * kD * 2;
  static constexpr int kP = kSplit > 1 ? kM* kN * 2 : 0;
  // Masks of rows relative to each tile of keys, which are smaller: otherwise two blocks of
  // head_dim 128 would not fit on SM 8.0.
  static constexpr bool kMaskOfTile = kD == 128;

  struct Shared {
    Either<kMaskOfTile, RowMaskOfTile, RowMask> rows[kM];
    TileMask warps[kRowGroups];
    Worker::Shared work;
    MaybeBias<kM, kN, kBias> bias;
  };
  static constexpr int kTiles = kTile + kStages * kRingTile + kP;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    forward_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN, kSplit = Shape::kSplit;
  constexpr int kStages = Shape::kStages, kThreads = Shape::kThreads;
  constexpr bool kBias = Shape::kBias;
  constexpr int kKeys = kN / kSplit;     // per warp, in the first product
  constexpr int kColumns = kD / kSplit;  // per warp, in the second
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t q_tile = shared_address(memory), ring = q_tile + Shape::kTile;
  const uint32_t p_tile = ring + kStages * Shape::kRingTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp % Shape::kRowGroups * 32, part = warp / Shape::kRowGroups;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t k_lane = Tile<kD>::columns_first(ring + part * kKeys * Tile<kD>::kRowBytes, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring, lane);
  const uint32_t p_lane = Tile<kN>::rows_first(p_tile + row0 * Tile<kN>::kRowBytes, lane);
  const float scale = kBias ? 0.5f : 0.5f * args.alpha;

  wait_for_kernel_before();
  Worker worker(args.list, args.heads, &shared.work);
  if constexpr (kBias) shared.bias.template load_tables<kThreads>(args.bias);
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int head = worker.head(), m0 = item.tile * kM;
    const int i0 = item.keys - item.queries + m0;  // position of the first query among the keys
    TileLoader<kM, kD, kThreads>(args.q, item.q_begin + m0, head)
        .load(q_tile, args.q, 0, item.queries - m0, args.head_dim);
    if constexpr (kBias) shared.bias.template load_times_after<kThreads>(args.bias, item, i0, 0);
    const KeyTiles<kN> tiles(make_row_masks<kM>(shared, args.mask, item, m0), item.keys);
    // Call before the barrier at the start of a tile of keys.
    const auto make_masks = [&](int t) {
      if constexpr (Shape::kMaskOfTile) {
        if (t < tiles.count && !tiles.covered(t) && threadIdx.x < kM)
          shared.rows[threadIdx.x] =
              RowMaskOfTile(row_mask_of_thread(args.mask, item, m0), tiles[t] * kN, kN);
      }
    };
    make_masks(0);

    if (tiles.count == 0) {
      worker.ask();
      worker.fetch();
    }
    Accumulators<32, kColumns> out;
    out.clear();
    uint32_t q[Shape::kKeepQ ? kD / 16 : 1][2][4];
    using Loader = TileLoader<kN, kD, kThreads>;
    const Loader keys(args.k, item.k_begin, head), values(args.v, item.k_begin, head);
    int filling = 0;  // next stage to fill
    const auto fill = [&](int t, auto is_v) {
      if (t < tiles.count) {
        const int j = tiles[t] * kN;
        const uint32_t to = ring + filling * Shape::kRingTile;
        if constexpr (is_v()) {
          values.load(to, args.v, j, tiles.keys - j, args.head_dim);
        } else {
          keys.load(to, args.k, j, tiles.keys - j, args.head_dim);
          if constexpr (kBias) {
            shared.bias.template load_times<kThreads>(args.bias, item, j, t & 1);
            shared.bias.template load_position<kThreads>(args.bias, i0, j, t & 1);
          }
        }
      }
      commit_copies();
      filling = filling + 1 == kStages ? 0 : filling + 1;
    };
    constexpr Yes kValuesTile;
    constexpr No kKeysTile;
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
      worker.look_ahead(t, tiles.count);
      const uint32_t k_at = k_lane + reading * Shape::kRingTile;
      Accumulators<32, kKeys> s;
      if constexpr (Shape::kKeepQ) {
        s.clear();
#pragma unroll
        for (int d = 0; d < kD / 16; ++d) {
          multiply_step<T>(s, q[d], [&](int c, uint32_t(&b)[4]) {
            load_matrices(b, Tile<kD>::block(k_at, c, d));
          });
        }
      } else {
        multiply_rows_at<T, kD>(s, q_lane, k_at, [](int) {});
      }
      if constexpr (kBias)
        add_bias<false>(s, shared.bias, args, 0, t & 1, t & 1, row0, part * kKeys, lane);
      if (!tiles.covered(t)) {
        const int first = Shape::kMaskOfTile ? 0 : tiles[t] * kN;
        hide(s, shared.rows, row0, first + part * kKeys, lane);
      }
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
      // Late on purpose: it overlaps with the products already issued.
      if constexpr (kStages == 3) fill(t + 1, kKeysTile);
      wait_copies<kStages - 2>();
      __syncthreads();
      if constexpr (kStages == 3) {
        fill(t + 1, kValuesTile);
      } else {
        fill(t + 1, kKeysTile);
      }
      make_masks(t + 1);
      const uint32_t v_at = v_lane + reading * Shape::kRingTile;
#pragma unroll
      for (int k = 0; k < kN / 16; ++k) {
        uint32_t a[2][4];
        if constexpr (kSplit > 1) {
          load_matrices(a[0], Tile<kN>::block(p_lane, 0, k));
          load_matrices(a[1], Tile<kN>::block(p_lane, 1, k));
        } else {
          silu_fragments<T>(a, s, scale, k);
        }
        add_values<T, kD>(out, a, v_at, k, part * (kColumns / 16));
      }
      reading = reading + 1 == kStages ? 0 : reading + 1;
    }

    commit_copies();
    wait_copies<0>();
    if (tiles.count == 0) __syncthreads();
    // Goes through Q's memory, which is free now. The piece is read from shared memory again,
    // rather than kept in registers.
    write_output<T, kD, kM>(args, worker.item(), worker.head(), q_tile, row0, part * kColumns, out,
                            lane);
    __syncthreads();
    worker.advance();
  }
}

}  // namespace seqfuse::ops::attention::sm80
