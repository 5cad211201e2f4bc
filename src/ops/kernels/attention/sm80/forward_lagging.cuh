// Forward for head_dim 256. The second product lags one tile behind the first, so that SiLU of one
// tile overlaps with the product of the previous one.
//
// With two stages each of K and V, one barrier per tile is enough. With one stage each, as on SM
// 8.0, a second barrier separates the products: after it, the next tile's K is loaded (at the last
// tile, that tile's V); after the first barrier, the previous tile's V. Each load overlaps with
// reading the other.
//
// An SM runs one block, so nothing hides the start and end of a piece, and a piece's first loads
// take as long as a tile. So the next piece's Q and first K are loaded during this one's last tile,
// as soon as Q is no longer read (with one stage, K after that tile); with two stages also its
// first V and second K, before the output. The output is written during the next piece's first
// product, while there is no V to multiply with yet. To allow that, the ring continues across
// pieces, so that a piece starts with the stages that the last product does not read, and the
// output goes through the free stage of P, some columns at a time. Requires a grain of 16 and no
// bias.
//
// The main loop needs nearly all registers, and small changes can make ptxas spill: after each
// change, check for spills and measure.
#pragma once

#include "ops/kernels/attention/sm80/forward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kD_, int kPlaces_>
struct ForwardLaggingShape {
  static constexpr int kD = kD_, kM = 128, kN = 64;
  static constexpr int kPlaces = kPlaces_, kStages = kPlaces;  // stages of K, and of V
  static constexpr int kSplit = 2;                             // as in ForwardShape
  static constexpr int kThreads = 128 * kSplit, kBlocks = 1;
  static constexpr int kTile = kM * kD * 2, kRingTile = kN * kD * 2, kP = kM * kN * 2;

  struct Shared {
    RowMask rows[kM];
    TileMask warps[kM / 32];
    Worker::Shared work;
  };
  static constexpr int kTiles = kTile + 2 * kPlaces * kRingTile + 2 * kP;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    forward_lagging_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN;
  constexpr int kThreads = Shape::kThreads, kRingTile = Shape::kRingTile;
  constexpr bool kOnePlace = Shape::kPlaces == 1;
  constexpr int kKeys = kN / Shape::kSplit;     // per warp, in the first product
  constexpr int kColumns = kD / Shape::kSplit;  // per warp, in the second
  static_assert(kKeys == 32 && kD == 256);
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t q_tile = shared_address(memory), ring = q_tile + Shape::kTile;
  const uint32_t p_tile = ring + 2 * Shape::kPlaces * kRingTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Warps w and w + 4 share a scheduler and get different queries, so that none idles while a
  // tile's keys are all hidden from half of the queries.
  const int part = warp / 4, group = warp % 4 ^ 2 * part, row0 = group * 32;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t k_lane = Tile<kD>::columns_first(ring + part * kKeys * Tile<kD>::kRowBytes, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring, lane);
  const uint32_t p_lane = Tile<kN>::rows_first(p_tile + row0 * Tile<kN>::kRowBytes, lane);
  const float scale = 0.5f * args.alpha;
  using Loader = TileLoader<kN, kD, kThreads>;

  wait_for_kernel_before();
  Worker worker(args.list, args.heads, &shared.work);
  KeyTiles<kN> tiles;
  // Number of the piece's first tile. With two stages, the parity of a tile's number selects one.
  int first = 0;
  // Offset in the ring K0 K1 V0 V1. With one stage each, K and V swap: a piece's last V goes where
  // K was, which is free first, and the next piece's K where V was.
  int k_place = 0;
  const auto keys_at = [&](int parity) {
    if constexpr (kOnePlace) return k_place;
    return parity * kRingTile;
  };
  const auto values_at = [&](int parity) {
    if constexpr (kOnePlace) return k_place ^ kRingTile;
    return (2 + parity) * kRingTile;
  };
  // Loads every other row of Q that this warp multiplies with; the other warp of the group loads
  // the rest.
  const auto load_queries = [&](const WorkItem& item, int head) {
    const int m0 = item.tile * kM + row0 + part, rows = item.queries - m0;
    const char* from = RowsView(args.q, item.q_begin + m0, head, args.head_dim).data + lane * 16;
    const uint32_t to = q_tile + (row0 + part) * Tile<kD>::kRowBytes + ((lane ^ part) << 4);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      copy_async((to ^ (2 * i & 6) << 4) + 2 * i * Tile<kD>::kRowBytes, from,
                 2 * i < rows && lane * 8 < args.head_dim);
      from += 2 * args.q.row_bytes;
    }
  };
  const auto load_first_keys = [&](const WorkItem& item, int head, int parity) {
    Loader(args.k, item.k_begin, head)
        .load_aligned(ring + keys_at(parity), args.k, 0, item.keys, args.head_dim);
  };
  // Loads the piece's Q and first K unless that was done early (with one stage, Q only), and
  // determines what it sees.
  const auto begin = [&](bool early) {
    const WorkItem& item = worker.item();
    // Then the first K tile starts at key 0.
    const bool without_window = args.mask.max_attn_len == 0;
    if (!early) {
      if (without_window) load_first_keys(item, worker.head(), first);
      load_queries(item, worker.head());
    }
    if constexpr (kOnePlace) {  // arranged to avoid spills
      if (early && without_window) load_first_keys(item, worker.head(), first);
    }
    tiles = KeyTiles<kN>(make_row_masks<kM>(shared, args.mask, item, item.tile * kM), item.keys);
    tiles.number_from(first);
    worker.begin_piece(tiles.count - first);
    if (tiles.count > first && !(without_window && tiles[first] == 0)) {
      if (without_window) {  // for copies to the same stage
        commit_copies();
        wait_copies<0>();
      }
      const int j = tiles[first] * kN;
      Loader(args.k, item.k_begin, worker.head())
          .load_aligned(ring + keys_at(first), args.k, j, tiles.keys - j, args.head_dim);
    }
    commit_copies();
  };
  // With two stages, loads the piece's first V and second K; not at once, since the other loads are
  // awaited first.
  const auto begin_values = [&] {
    if constexpr (kOnePlace) return;
    const WorkItem& item = worker.item();
    if (tiles.count > first) {
      const int j = tiles[first] * kN;
      const int next_j = first + 1 < tiles.count ? tiles[first + 1] * kN : tiles.keys;
      Loader(args.v, item.k_begin, worker.head())
          .load_aligned(ring + values_at(first), args.v, j, tiles.keys - j, args.head_dim);
      Loader(args.k, item.k_begin, worker.head())
          .load_aligned(ring + keys_at(first ^ 1), args.k, next_j, tiles.keys - next_j,
                        args.head_dim);
    }
    commit_copies();
  };
  if (!worker.done()) {
    begin(false);
    begin_values();
  }
  Accumulators<32, kColumns> out;
  OutputInParts output;  // of the previous piece, whose values are in out
  const auto stage_part = [&](int n, int place) {
    output.stage<T>(args, n, p_tile + place * Shape::kP, row0, part * kKeys, out, lane);
  };
  const auto write_part = [&](int n, int place) {
    output.write(args, n, p_tile + place * Shape::kP, row0, part * kKeys, lane);
  };
  const auto write_output = [&](int place) {
#pragma unroll
    for (int n = 0; n < kColumns / OutputInParts::kColumns; ++n) {
      stage_part(n, place);
      write_part(n, place);
    }
    out.clear();
  };
  out.clear();
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const Loader keys(args.k, item.k_begin, worker.head());
    const Loader values(args.v, item.k_begin, worker.head());
    constexpr Yes kYes;
    constexpr No kNo;
    enum class Second { kNone, kValues, kOutput };
    constexpr Constant<Second::kNone> kNone;
    constexpr Constant<Second::kValues> kValues;
    constexpr Constant<Second::kOutput> kOutput;
    // At the last tile: whether the record of a next piece is there.
    const auto knows_next = [&] { return tiles.count - first > 1 && worker.next_item().tile >= 0; };
    const auto load_keys = [&](int t, int to) {
      const int j = tiles[t] * kN;
      keys.load_aligned(ring + to, args.k, j, tiles.keys - j, args.head_dim);
    };
    const auto load_values = [&](int t, int to) {
      const int j = tiles[t] * kN;
      values.load_aligned(ring + to, args.v, j, tiles.keys - j, args.head_dim);
    };
    const auto load_values_before = [&](int t) {
      load_values(t - 1, values_at(~t & 1));
      commit_copies();
    };
    // Computes the scores of tile t, then their SiLU while the second product adds the values of
    // tile t - 1. Between the two products it loads for the next tile, if there is one, or for the
    // next piece; with two stages begin_values() did so for the first tile. The first tile's scores
    // also overlap with writing the previous piece's output. last: t is past the last tile.
    const auto run = [&](int t, auto with_scores, auto second, auto masked, auto more, auto last) {
      Accumulators<32, kKeys> s;
      if constexpr (with_scores()) {
        multiply_rows_at<T, kD>(s, q_lane, k_lane + keys_at(t & 1), [&](int d) {
          if constexpr (kOnePlace) {
            // Doing so at once would be slower.
            if (d == 4 && (second() == Second::kValues || t > first)) load_values_before(t);
          }
          if constexpr (second() == Second::kOutput) {
            if (d % 4 == 1) stage_part(d / 4, ~t & 1);
            if (d % 4 == 3) write_part(d / 4, ~t & 1);
          }
        });
        if (masked) hide(s, shared.rows, row0, tiles[t] * kN + part * kKeys, lane);
      }
      if constexpr (!last()) {
        if constexpr (kOnePlace) {
          if constexpr (!with_scores()) {
            if (t > first) load_values_before(t);
          }
          wait_copies<0>();
          __syncthreads();
          if (more) {
            load_keys(t + 1, k_place);
          } else {
            load_values(t, k_place);
          }
        } else if (second() == Second::kValues || t > first) {
          if (more) load_keys(t + 1, keys_at(~t & 1));
          load_values(t, values_at(t & 1));
        }
        commit_copies();
        if constexpr (!kIsSame<decltype(more), Yes>) {
          if (!more && knows_next()) {
            const WorkItem& next = worker.next_item();
            if constexpr (!kOnePlace) {
              if (args.mask.max_attn_len == 0) load_first_keys(next, worker.next_head(), ~t & 1);
              sync_threads(1 + group, 64);  // the two warps that read these rows
            }
            load_queries(next, worker.next_head());
            commit_copies();
          }
        }
      }
      const uint32_t v_at = v_lane + values_at(~t & 1);
      const uint32_t p_at = p_lane + (~t & 1) * Shape::kP, p_to = p_tile + (t & 1) * Shape::kP;
#pragma unroll
      for (int k = 0; k < kN / 16; ++k) {
        if constexpr (second() == Second::kValues) {
          uint32_t a[2][4];
          load_matrices(a[0], Tile<kN>::block(p_at, 0, k));
          load_matrices(a[1], Tile<kN>::block(p_at, 1, k));
          add_values<T, kD>(out, a, v_at, k, part * (kColumns / 16));
        }
        if constexpr (with_scores()) {
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
      if constexpr (second() == Second::kOutput) out.clear();
    };
    const int count = tiles.count;
    struct Sight {
      bool any, partly, more;  // visible keys: any, not all; tiles left
    };
    const auto enter = [&](int t) {
      __syncthreads();
      worker.look_further_ahead(t, first, count);
      const int j0 = tiles[t] * kN;
      const bool covered = tiles.covered(t);
      return Sight{covered || shared.warps[group].touches(j0, j0 + kN),
                   !covered && !shared.warps[group].covers(j0, j0 + kN, tiles.keys), t + 1 < count};
    };
    Sight start{false, false, false};
    if (count > first) {
      wait_copies<kOnePlace ? 0 : 1>();
      start = enter(first);
    }
    if (start.any) {
      run(first, kYes, kOutput, start.partly, start.more, kNo);
    } else {
      write_output(first);
      if (count > first) run(first, kNo, kNone, kNo, start.more, kNo);
    }
    bool before = start.any;  // tile t - 1 has values for this warp
    for (int t = first + 1; t < count; ++t) {
      wait_copies<0>();
      const auto [any, partly, more] = enter(t);
      if (!partly && any && before && more) {
        run(t, kYes, kValues, kNo, kYes, kNo);
      } else if (any && before) {
        run(t, kYes, kValues, partly, more, kNo);
      } else if (any) {
        run(t, kYes, kNone, partly, more, kNo);
      } else if (before) {
        run(t, kNo, kValues, kNo, more, kNo);
      } else {
        run(t, kNo, kNone, kNo, more, kNo);
      }
      before = any;
    }
    // Now Q, the masks, one stage of P and all of the ring but the last tile's values are free.
    const bool early = knows_next();
    worker.end_piece(count - first, early);
    if (kOnePlace && count > first) k_place ^= kRingTile;
    first = count & 1;
    if (!worker.done()) begin(early);
    if (before) run(count, kNo, kValues, kNo, kNo, kYes);
    if (!worker.done()) begin_values();
    output = OutputInParts::of<kM>(args, worker.last_item(), worker.last_head(), row0,
                                   part * kColumns, lane);
  }
  write_output(first);
}

}  // namespace seqfuse::ops::attention::sm80
