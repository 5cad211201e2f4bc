// Backward of softmax attention under a mask without atomics, after masked_delta.cu: dq by blocks of
// queries; dk and dv by blocks of keys. Both compute the weights again. Four warps have 16 rows of a
// block each.
#pragma once

#include "ops/kernels/attention/sm80/masked_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kDim_>
struct MaskedBackwardShape {
  static constexpr int kDim = kDim_, kD = kDim <= 32 ? 32 : kDim <= 64 ? 64 : 128;
  static constexpr int kM = kMaskBlock, kN = kMaskBlock, kThreads = 128;
  static constexpr int kStages = kD == 128 ? 1 : 2;  // of two tiles each
  static constexpr int kBlocks = kD == 128 ? 2 : 3;  // per SM 8.0
  static constexpr int kTile = kMaskBlock * kD * 2;

  // Of the queries of a stage, for blocks of keys.
  struct Rows {
    float shift[kMaskBlock], delta[kMaskBlock];
    uint64_t bits[kMaskBlock];
  };
  static constexpr int kTiles = (2 + 2 * kStages) * kTile;
  static constexpr int kSharedBytes = kTiles + kStages * sizeof(Rows);
};

// Walks a list of blocks with one or two stages of two tiles each. load(stage, step, entry) copies
// a step's tiles; work(stage, step, entry) is called when they are there. steps is a multiple of the
// list's length, which is walked as often.
template <int kStages, class Load, class Work>
__device__ __forceinline__ void walk_list(const BlockList& list, int begin, int count, int steps,
                                          Load&& load, Work&& work) {
  const auto entry_of = [&](int step) {
    BlockEntry entry;
    entry.fetch_number(list, begin + step % count);
    return entry;
  };
  if (steps == 0) {  // what was copied before still has to arrive
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    return;
  }
  BlockEntry entry = entry_of(0), next{};
  if (steps > 1) next = entry_of(1);
  entry.fetch_seen(list);
  load(0, 0, entry);
  commit_copies();
  for (int t = 0; t < steps; ++t) {
    const bool more = t + 1 < steps;
    const int stage = kStages == 2 ? t & 1 : 0;
    if (more) next.fetch_seen(list);
    BlockEntry after{};
    if (t + 2 < steps) after = entry_of(t + 2);
    if constexpr (kStages == 2) {
      if (more) load(stage ^ 1, t + 1, next);
      commit_copies();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    work(stage, t, entry);
    __syncthreads();
    if constexpr (kStages == 1) {
      if (more) load(0, t + 1, next);
      commit_copies();
    }
    entry = next;
    next = after;
  }
  wait_copies<0>();
}

// dq of 64 queries of a head.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    masked_backward_queries_kernel(const __grid_constant__ MaskedArguments args) {
  constexpr int kD = Shape::kD, kDim = Shape::kDim, kTile = Shape::kTile;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t q_tile = shared_address(memory), dout_tile = q_tile + kTile;
  const uint32_t stages = dout_tile + kTile;  // K, V, K, V
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t dout_lane = q_lane + kTile;

  const BlockMaskView& mask = args.mask;
  const MaskedPiece piece(mask, mask.row_order, mask.query_blocks, args.batch, args.heads);
  const BlockList list = BlockList::of_queries(mask);
  const int begin = list.begin[piece.list], count = list.begin[piece.list + 1] - begin;
  const int key_head = piece.head / (args.heads / args.key_heads);

  using Loader = SeenLoader<kD, Shape::kThreads>;
  const masks::BlockTokens own = mask.queries_of(piece.block);
  const uint64_t rows = bits_of(own);
  Loader(args.q.of(piece.sequence), piece.head, args.head_dim, mask.step)
      .load(q_tile, own.first, rows);
  Loader(args.dout.of(piece.sequence), piece.head, args.head_dim, mask.step)
      .load(dout_tile, own.first, rows);
  const Loader keys(args.k.of(piece.sequence), key_head, args.head_dim, mask.step);
  const Loader values(args.v.of(piece.sequence), key_head, args.head_dim, mask.step);

  float shift[2], delta[2];
  const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + piece.head;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + 8 * half + (lane >> 2);
    const int64_t at = head_row * mask.queries + own.first + row * mask.step;
    const bool exists = rows >> row & 1;
    shift[half] = exists ? args.shift[at] : 0.0f;
    delta[half] = exists ? args.delta[at] : 0.0f;
  }

  Accumulators<16, kDim> dq;
  dq.clear();
  const float scale = args.scale * kLog2e;
  walk_list<Shape::kStages>(
      list, begin, count, count,
      [&](int stage, int, const BlockEntry& entry) {
        const int64_t first = mask.keys_of(entry.index).first;
        keys.load(stages + 2 * stage * kTile, first, entry.seen);
        values.load(stages + (2 * stage + 1) * kTile, first, entry.seen);
      },
      [&](int stage, int, const BlockEntry& entry) {
        QueryBits<16> bits;
        if (!entry.full())
          bits.fetch(mask.bits + static_cast<int64_t>(entry.bitmap) * kMaskBlock, row0, lane);
        const uint32_t k_tile = stages + 2 * stage * kTile, v_tile = k_tile + kTile;
        Accumulators<16, kMaskBlock> s, ds;
        multiply_tiles<T, kD, kDim>(s, q_lane, Tile<kD>::columns_first(k_tile, lane));
        multiply_tiles<T, kD, kDim>(ds, dout_lane, Tile<kD>::columns_first(v_tile, lane));
#pragma unroll
        for (int c = 0; c < kMaskBlock / 8; ++c) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float p = exp2_approximate(fmaf(s.v[0][c][e], scale, -shift[e / 2]));
            ds.v[0][c][e] = p * (ds.v[0][c][e] - delta[e / 2]);
          }
        }
        if (!entry.full()) bits.hide(ds, 0.0f, lane);
        add_weighted_rows<T, kD>(dq, ds, Tile<kD>::rows_first(k_tile, lane));
      });
  write_rows<T, kD>(args.dq.of(piece.sequence), piece.head, own, mask.step, args.head_dim, q_tile,
                    row0, dq, args.scale, lane);
}

// dk and dv of 64 keys of a head, from all heads of queries that read it.
template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    masked_backward_keys_kernel(const __grid_constant__ MaskedArguments args) {
  constexpr int kD = Shape::kD, kDim = Shape::kDim, kTile = Shape::kTile;
  using Rows = typename Shape::Rows;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t k_tile = shared_address(memory), v_tile = k_tile + kTile;
  const uint32_t stages = v_tile + kTile;  // Q, dout, Q, dout
  auto* const rows_of_stage = reinterpret_cast<Rows*>(memory + Shape::kTiles);
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16;
  const uint32_t k_lane = Tile<kD>::rows_first(k_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t v_lane = k_lane + kTile;

  const BlockMaskView& mask = args.mask;
  const MaskedPiece piece(mask, mask.column_order, mask.key_blocks, args.batch, args.key_heads);
  const BlockList list = BlockList::of_keys(mask);
  const int begin = list.begin[piece.list], count = list.begin[piece.list + 1] - begin;
  const int group = args.heads / args.key_heads;

  using Loader = SeenLoader<kD, Shape::kThreads>;
  const masks::BlockTokens own = mask.keys_of(piece.block);
  Loader(args.k.of(piece.sequence), piece.head, args.head_dim, mask.step)
      .load(k_tile, own.first, bits_of(own));
  Loader(args.v.of(piece.sequence), piece.head, args.head_dim, mask.step)
      .load(v_tile, own.first, bits_of(own));

  const auto load = [&](int stage, int step, const BlockEntry& entry) {
    const int head = piece.head * group + step / count;
    const masks::BlockTokens queries = mask.queries_of(entry.index);
    const uint64_t seen = entry.seen & bits_of(queries);
    const uint32_t tile = stages + 2 * stage * kTile;
    Loader(args.q.of(piece.sequence), head, args.head_dim, mask.step)
        .load(tile, queries.first, seen);
    Loader(args.dout.of(piece.sequence), head, args.head_dim, mask.step)
        .load(tile + kTile, queries.first, seen);
    const int i = threadIdx.x % kMaskBlock;
    const bool exists = seen >> i & 1;
    const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + head;
    const int64_t at = head_row * mask.queries + queries.first + i * mask.step;
    Rows& rows = rows_of_stage[stage];
    if (threadIdx.x < kMaskBlock) {
      copy_async_small<4>(shared_address(&rows.shift[i]), args.shift + at, exists);
      copy_async_small<4>(shared_address(&rows.delta[i]), args.delta + at, exists);
    } else if (!entry.full()) {
      copy_async_small<8>(shared_address(&rows.bits[i]),
                          mask.bits + static_cast<int64_t>(entry.bitmap) * kMaskBlock + i, true);
    }
  };
  Accumulators<16, kDim> dk, dv;
  dk.clear();
  dv.clear();
  const float scale = args.scale * kLog2e;
  walk_list<Shape::kStages>(
      list, begin, count, count * group, load, [&](int stage, int, const BlockEntry& entry) {
        const uint32_t q_tile = stages + 2 * stage * kTile, dout_tile = q_tile + kTile;
        const Rows& rows = rows_of_stage[stage];
        // Transposed: rows are keys, columns queries.
        Accumulators<16, kMaskBlock> p, ds;
        multiply_tiles<T, kD, kDim>(p, k_lane, Tile<kD>::columns_first(q_tile, lane));
        multiply_tiles<T, kD, kDim>(ds, v_lane, Tile<kD>::columns_first(dout_tile, lane));
        const int key = row0 + (lane >> 2);
#pragma unroll
        for (int c = 0; c < kMaskBlock / 8; ++c) {
          const int q = 8 * c + 2 * (lane & 3);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float shift = rows.shift[q + e], delta = rows.delta[q + e];
            // The bits of this lane's two keys are bits 0 and 8.
            const auto seen =
                entry.full() ? 0x101u : static_cast<uint32_t>(rows.bits[q + e] >> key);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float& weight = p.v[0][c][2 * half + e];
              float& gradient = ds.v[0][c][2 * half + e];
              const bool sees = seen >> (8 * half) & 1;
              weight = sees ? exp2_approximate(fmaf(weight, scale, -shift)) : 0.0f;
              gradient = sees ? weight * (gradient - delta) : 0.0f;
            }
          }
        }
        add_weighted_rows<T, kD>(dv, p, Tile<kD>::rows_first(dout_tile, lane));
        add_weighted_rows<T, kD>(dk, ds, Tile<kD>::rows_first(q_tile, lane));
      });
  write_rows<T, kD>(args.dk.of(piece.sequence), piece.head, own, mask.step, args.head_dim, k_tile,
                    row0, dk, args.scale, lane);
  write_rows<T, kD>(args.dv.of(piece.sequence), piece.head, own, mask.step, args.head_dim, v_tile,
                    row0, dv, 1.0f, lane);
}

}  // namespace seqfuse::ops::attention::sm80
