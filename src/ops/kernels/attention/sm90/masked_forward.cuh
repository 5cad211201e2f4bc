// Forward of softmax attention under a mask for SM 9.0 and head_dim up to 64: a warp group, four warps,
// takes 64 queries of a head and walks their list of key blocks, as in sm80/masked_forward.cuh.
//
// What bounds it on narrow masks is the number of instructions, so a warp has few besides those of the
// softmax: wgmma reads Q, K and V where they lie, and one thread has the copy engine bring them. Two
// stages, each with K and V of a block; a stage is filled again when all warps have done with it.
#pragma once

#include "ops/kernels/attention/sm80/masked_softmax.cuh"
#include "ops/kernels/attention/sm90/masked_tiles.cuh"

namespace seqfuse::ops::attention::sm90 {

struct MaskedForwardShape {
  static constexpr int kM = kMaskBlock, kN = kMaskBlock, kThreads = kMaskedThreads;
  static constexpr int kStages = 2;
  static constexpr int kBlocks = 5;  // per SM
  static constexpr int kTiles = (1 + 2 * kStages) * kMaskedTile;
  static constexpr int kSharedBytes = kTiles + 8 * kStages;  // a barrier for each stage
};

template <class T, class Shape>
__global__ void __launch_bounds__(kMaskedThreads, Shape::kBlocks)
    masked_forward_kernel(const __grid_constant__ MaskedArguments args,
                          const __grid_constant__ MaskedTiles tiles) {
  constexpr int kTile = kMaskedTile;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t q_tile = shared_address(memory), stages = q_tile + kTile;  // K, V, K, V
  const uint32_t barriers = q_tile + Shape::kTiles;
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
      const PlaceOfBlock own(piece.block, tiles.query_blocks, mask.step);
      expect_bytes(barriers, 3 * kTile);
      copy_block(q_tile, tiles.q, own, piece.head, piece.sequence, barriers);
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
  __syncthreads();  // the barriers are there

  Accumulators<16, 64> out;
  out.clear();
  SoftmaxRows<16> softmax;
  softmax.clear();
  for (int t = 0; t < count; ++t) {
    const int stage = t % 2;
    const uint32_t k_tile = stages + 2 * stage * kTile, v_tile = k_tile + kTile;
    wait_bytes(barriers + 8 * stage, t / 2 % 2);
    if (seen.keys != kAllKeys) {  // the same for all threads
      clear_unseen_rows(v_tile, seen.keys);
      show_to_products();
      __syncthreads();
    }
    const uint64_t q = descriptor(q_tile), k = descriptor(k_tile), v = descriptor(v_tile);
    Accumulators<16, 64> s;
    begin_products();
    multiply_rows<T>(s, q, k);
    commit_products();
    next.fetch(mask, next_bitmap, row0, lane);
    next_bitmap = t + 2 < count ? mask.bitmap[begin + t + 2] : -1;
    wait_products();
    hold(s);
    if (seen.bitmap >= 0) seen.bits.hide(s, kNone, lane);
    softmax.add(s, out, args.scale * kLog2e);
    Fragments weights;
    to_fragments<T>(weights, s);
    hold(weights);
    hold(out);
    begin_products();
    add_product<T>(out, weights, v);
    commit_products();
    wait_products();
    hold(weights);
    hold(out);
    seen = next;
    __syncthreads();  // all warps have done with the stage
    if (threadIdx.x == 0 && t + 2 < count) {
      expect_bytes(barriers + 8 * stage, 2 * kTile);
      fill(stage, block_ahead);
      if (t + 3 < count) block_ahead = mask.column[begin + t + 3];
    }
  }
  const masks::BlockTokens own = mask.queries_of(piece.block);
  const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + piece.head;
  softmax.finish(out, args.scale, args.lse + head_row * mask.queries + own.first + row0 * mask.step,
                 static_cast<int>(own.count) - row0, mask.step, lane);
  // Through Q's memory, with which nobody multiplies any more.
  write_rows<T, 64>(args.out.of(piece.sequence), piece.head, own, mask.step, args.head_dim, q_tile,
                    row0, out, 1.0f, lane);
}

}  // namespace seqfuse::ops::attention::sm90
