// Backward of softmax attention under a mask for SM 9.0 and head_dim up to 64: dq by blocks of queries,
// dk and dv by blocks of keys, as in sm80/masked_backward.cuh. A warp group has the 64 rows of a block
// and walks its list; tiles come and are multiplied as in masked_forward.cuh.
#pragma once

#include "ops/kernels/attention/sm90/masked_tiles.cuh"

namespace seqfuse::ops::attention::sm90 {

struct MaskedBackwardShape {
  static constexpr int kM = kMaskBlock, kN = kMaskBlock, kThreads = kMaskedThreads;
  static constexpr int kStages = 2;
  static constexpr int kTiles = (2 + 2 * kStages) * kMaskedTile;

  // Of the queries of a stage, for blocks of keys.
  struct Rows {
    float shift[kMaskBlock], delta[kMaskBlock];
    uint64_t bits[kMaskBlock];
  };
};

struct MaskedQueriesShape : MaskedBackwardShape {
  static constexpr int kBlocks = 4;  // per SM
  static constexpr int kBarriers = kTiles;
  static constexpr int kSharedBytes = kBarriers + 8 * kStages;
};

struct MaskedKeysShape : MaskedBackwardShape {
  static constexpr int kBlocks = 3;
  static constexpr int kBarriers = kTiles + kStages * sizeof(Rows);
  static constexpr int kSharedBytes = kBarriers + 8 * kStages;
};

// dq of 64 queries of a head.
template <class T, class Shape>
__global__ void __launch_bounds__(kMaskedThreads, Shape::kBlocks)
    masked_backward_queries_kernel(const __grid_constant__ MaskedArguments args,
                                   const __grid_constant__ MaskedTiles tiles) {
  constexpr int kTile = kMaskedTile;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t q_tile = shared_address(memory), dout_tile = q_tile + kTile;
  const uint32_t stages = dout_tile + kTile;  // K, V, K, V
  const uint32_t barriers = q_tile + Shape::kBarriers;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16;

  const BlockMaskView& mask = args.mask;
  const MaskedPiece piece(mask, mask.row_order, mask.query_blocks, args.batch, args.heads);
  const int begin = mask.row_begin[piece.list], count = mask.row_begin[piece.list + 1] - begin;

  // By thread 0.
  const int key_head = tiles.group == 1 ? piece.head : piece.head / tiles.group;
  const auto fill = [&](int stage, int block) {
    const PlaceOfBlock at(block, tiles.key_blocks, mask.step);
    const uint32_t barrier = barriers + 8 * stage, to = stages + 2 * stage * kTile;
    copy_block(to, tiles.k, at, key_head, piece.sequence, barrier);
    copy_block(to + kTile, tiles.v, at, key_head, piece.sequence, barrier);
  };
  int block_ahead = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) init_arrivals(barriers + 8 * i, 1);
    show_barriers_to_copies();
    if (count > 0) {
      const PlaceOfBlock at(piece.block, tiles.query_blocks, mask.step);
      expect_bytes(barriers, 4 * kTile);
      copy_block(q_tile, tiles.q, at, piece.head, piece.sequence, barriers);
      copy_block(dout_tile, tiles.dout, at, piece.head, piece.sequence, barriers);
      fill(0, mask.column[begin]);
    }
    if (count > 1) {
      expect_bytes(barriers + 8, 2 * kTile);
      fill(1, mask.column[begin + 1]);
    }
    if (count > 2) block_ahead = mask.column[begin + 2];
  }
  SeenBlock seen, next;
  if (count > 0) seen.fetch(mask, mask.bitmap[begin], row0, lane);
  int next_bitmap = count > 1 ? mask.bitmap[begin + 1] : -1;

  const masks::BlockTokens own = mask.queries_of(piece.block);
  float shift[2], delta[2];
  const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + piece.head;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + 8 * half + (lane >> 2);
    const int64_t at = head_row * mask.queries + own.first + row * mask.step;
    const bool exists = row < own.count;
    shift[half] = exists ? args.shift[at] : 0.0f;
    delta[half] = exists ? args.delta[at] : 0.0f;
  }
  __syncthreads();  // the barriers are there

  Accumulators<16, 64> dq;
  dq.clear();
  const float scale = args.scale * kLog2e;
  for (int t = 0; t < count; ++t) {
    const int stage = t % 2;
    const uint32_t k_tile = stages + 2 * stage * kTile, v_tile = k_tile + kTile;
    wait_bytes(barriers + 8 * stage, t / 2 % 2);
    if (seen.keys != kAllKeys) {  // the same for all threads
      clear_unseen_rows(k_tile, seen.keys);
      show_to_products();
      __syncthreads();
    }
    Accumulators<16, 64> s, ds;
    begin_products();
    multiply_rows<T>(s, descriptor(q_tile), descriptor(k_tile));
    multiply_rows<T>(ds, descriptor(dout_tile), descriptor(v_tile));
    commit_products();
    next.fetch(mask, next_bitmap, row0, lane);
    next_bitmap = t + 2 < count ? mask.bitmap[begin + t + 2] : -1;
    wait_products();
    hold(s);
    hold(ds);
#pragma unroll
    for (int c = 0; c < kMaskBlock / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float p = exp2_approximate(fmaf(s.v[0][c][e], scale, -shift[e / 2]));
        ds.v[0][c][e] = p * (ds.v[0][c][e] - delta[e / 2]);
      }
    }
    if (seen.bitmap >= 0) seen.bits.hide(ds, 0.0f, lane);
    Fragments gradients;
    to_fragments<T>(gradients, ds);
    hold(gradients);
    hold(dq);
    begin_products();
    add_product<T>(dq, gradients, descriptor(k_tile));
    commit_products();
    wait_products();
    hold(gradients);
    hold(dq);
    seen = next;
    __syncthreads();  // all warps have done with the stage
    if (threadIdx.x == 0 && t + 2 < count) {
      expect_bytes(barriers + 8 * stage, 2 * kTile);
      fill(stage, block_ahead);
      if (t + 3 < count) block_ahead = mask.column[begin + t + 3];
    }
  }
  // Through Q's memory, with which nobody multiplies any more.
  write_rows<T, 64>(args.dq.of(piece.sequence), piece.head, own, mask.step, args.head_dim, q_tile,
                    row0, dq, args.scale, lane);
}

// The blocks of queries that see a block of keys, for one head of queries after the other.
struct ListedQueries {
  BlockEntry entry{};
  int number, head;  // of the entry in its list; of queries

  __device__ __forceinline__ void fetch(const BlockList& list, int begin) {
    entry.fetch_number(list, begin + number);
  }
  __device__ __forceinline__ void advance(int count) {
    if (++number == count) {
      number = 0;
      ++head;
    }
  }
};

// dk and dv of 64 keys of a head, from all heads of queries that read it.
template <class T, class Shape>
__global__ void __launch_bounds__(kMaskedThreads, Shape::kBlocks)
    masked_backward_keys_kernel(const __grid_constant__ MaskedArguments args,
                                const __grid_constant__ MaskedTiles tiles) {
  constexpr int kTile = kMaskedTile;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t k_tile = shared_address(memory), v_tile = k_tile + kTile;
  const uint32_t stages = v_tile + kTile;  // Q, dout, Q, dout
  auto* const rows_of_stage = reinterpret_cast<typename Shape::Rows*>(memory + Shape::kTiles);
  const uint32_t barriers = k_tile + Shape::kBarriers;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16;

  const BlockMaskView& mask = args.mask;
  const MaskedPiece piece(mask, mask.column_order, mask.key_blocks, args.batch, args.key_heads);
  const BlockList list = BlockList::of_keys(mask);
  const int begin = list.begin[piece.list], count = list.begin[piece.list + 1] - begin;
  const int steps = count * tiles.group, first_head = piece.head * tiles.group;

  // By thread 0.
  const auto fill = [&](int stage, int block, int head) {
    const PlaceOfBlock at(block, tiles.query_blocks, mask.step);
    const uint32_t barrier = barriers + 8 * stage, to = stages + 2 * stage * kTile;
    copy_block(to, tiles.q, at, head, piece.sequence, barrier);
    copy_block(to + kTile, tiles.dout, at, head, piece.sequence, barrier);
  };
  ListedQueries now{.number = 0, .head = first_head};
  if (steps > 0) now.fetch(list, begin);
  ListedQueries next = now;
  next.advance(count);
  if (steps > 1) next.fetch(list, begin);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kStages; ++i) init_arrivals(barriers + 8 * i, 1);
    show_barriers_to_copies();
    if (steps > 0) {
      const PlaceOfBlock at(piece.block, tiles.key_blocks, mask.step);
      expect_bytes(barriers, 4 * kTile);
      copy_block(k_tile, tiles.k, at, piece.head, piece.sequence, barriers);
      copy_block(v_tile, tiles.v, at, piece.head, piece.sequence, barriers);
      fill(0, now.entry.index, now.head);
    }
    if (steps > 1) {
      expect_bytes(barriers + 8, 2 * kTile);
      fill(1, next.entry.index, next.head);
    }
  }
  // Threads 0 to 63 bring shift and delta of a query each, the others the keys that it sees.
  float shift = 0, delta = 0;
  uint64_t word = 0;
  const auto fetch_rows = [&](const ListedQueries& of) {
    const int i = threadIdx.x % kMaskBlock;
    if (threadIdx.x < kMaskBlock) {
      const masks::BlockTokens queries = mask.queries_of(of.entry.index);
      const bool exists = (of.entry.seen & bits_of(queries)) >> i & 1;
      const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + of.head;
      const int64_t at = head_row * mask.queries + queries.first + i * mask.step;
      shift = exists ? args.shift[at] : 0.0f;
      delta = exists ? args.delta[at] : 0.0f;
    } else if (!of.entry.full()) {
      word = mask.bits[static_cast<int64_t>(of.entry.bitmap) * kMaskBlock + i];
    }
  };
  const auto put_rows = [&](int stage) {
    const int i = threadIdx.x % kMaskBlock;
    auto& rows = rows_of_stage[stage];
    if (threadIdx.x < kMaskBlock) {
      rows.shift[i] = shift;
      rows.delta[i] = delta;
    } else {
      rows.bits[i] = word;
    }
  };
  if (steps > 0) {
    now.entry.fetch_seen(list);
    fetch_rows(now);
    put_rows(0);
  }
  __syncthreads();  // these rows and the barriers are there

  Accumulators<16, 64> dk, dv;
  dk.clear();
  dv.clear();
  const float scale = args.scale * kLog2e;
  for (int t = 0; t < steps; ++t) {
    const int stage = t % 2;
    const bool more = t + 1 < steps;
    const uint32_t q_tile = stages + 2 * stage * kTile, dout_tile = q_tile + kTile;
    const auto& rows = rows_of_stage[stage];
    if (more) next.entry.fetch_seen(list);
    ListedQueries after{.number = next.number, .head = next.head};
    after.advance(count);
    if (t + 2 < steps) after.fetch(list, begin);
    wait_bytes(barriers + 8 * stage, t / 2 % 2);
    if (now.entry.seen != kAllKeys) {  // the same for all threads
      clear_unseen_rows(q_tile, now.entry.seen);
      clear_unseen_rows(dout_tile, now.entry.seen);
      show_to_products();
      __syncthreads();
    }
    // Transposed: rows are keys, columns queries.
    Accumulators<16, 64> p, ds;
    begin_products();
    multiply_rows<T>(p, descriptor(k_tile), descriptor(q_tile));
    multiply_rows<T>(ds, descriptor(v_tile), descriptor(dout_tile));
    commit_products();
    if (more) fetch_rows(next);
    wait_products();
    hold(p);
    hold(ds);
    const int key = row0 + (lane >> 2);
#pragma unroll
    for (int c = 0; c < kMaskBlock / 8; ++c) {
      const int q = 8 * c + 2 * (lane & 3);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float of_shift = rows.shift[q + e], of_delta = rows.delta[q + e];
        // The bits of this lane's two keys are bits 0 and 8.
        const auto seen =
            now.entry.full() ? 0x101u : static_cast<uint32_t>(rows.bits[q + e] >> key);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& weight = p.v[0][c][2 * half + e];
          float& gradient = ds.v[0][c][2 * half + e];
          const bool sees = seen >> (8 * half) & 1;
          weight = sees ? exp2_approximate(fmaf(weight, scale, -of_shift)) : 0.0f;
          gradient = sees ? weight * (gradient - of_delta) : 0.0f;
        }
      }
    }
    Fragments weights, gradients;
    to_fragments<T>(weights, p);
    to_fragments<T>(gradients, ds);
    hold(weights);
    hold(gradients);
    hold(dv);
    hold(dk);
    begin_products();
    add_product<T>(dv, weights, descriptor(dout_tile));
    add_product<T>(dk, gradients, descriptor(q_tile));
    commit_products();
    wait_products();
    hold(weights);
    hold(gradients);
    hold(dv);
    hold(dk);
    if (more) put_rows(stage ^ 1);
    now = next;
    next = after;
    __syncthreads();  // all warps have done with the stage, and the next rows are there
    if (threadIdx.x == 0 && t + 2 < steps) {
      expect_bytes(barriers + 8 * stage, 2 * kTile);
      fill(stage, next.entry.index, next.head);
    }
  }
  // Through the memory of K and V, with which nobody multiplies any more.
  const masks::BlockTokens own = mask.keys_of(piece.block);
  write_rows<T, 64>(args.dk.of(piece.sequence), piece.head, own, mask.step, args.head_dim, k_tile,
                    row0, dk, args.scale, lane);
  write_rows<T, 64>(args.dv.of(piece.sequence), piece.head, own, mask.step, args.head_dim, v_tile,
                    row0, dv, 1.0f, lane);
}

}  // namespace seqfuse::ops::attention::sm90
