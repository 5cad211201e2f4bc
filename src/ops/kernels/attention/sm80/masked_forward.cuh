// Forward of softmax attention under a mask: a block takes 64 queries of a head and walks their
// list of key blocks. Two warps have 32 queries each, so that each fragment of K and V serves two
// products; for head_dim 128, whose sums do not fit in their registers, four warps have 16 each.
//
// K and V alternate in a ring of stages, filled kStages - 1 tiles ahead, as in forward.cuh.
#pragma once

#include "ops/kernels/attention/sm80/masked_softmax.cuh"

namespace seqfuse::ops::attention::sm80 {

// kDim_: head_dim rounded up to 32, 64, 96 or 128; products have this width, tiles one of 32, 64 or
// 128.
template <int kDim_>
struct MaskedForwardShape {
  static constexpr int kDim = kDim_, kD = kDim <= 32 ? 32 : kDim <= 64 ? 64 : 128;
  static constexpr int kM = kMaskBlock, kN = kMaskBlock;
  static constexpr int kRows = kDim == 128 ? 16 : 32;  // of a warp
  static constexpr int kThreads = kM / kRows * 32;
  static constexpr int kStages = kD == 128 ? 2 : 3;
  static constexpr bool kKeepQ = kDim <= 64;         // keep Q's fragments in registers
  static constexpr int kBlocks = kD == 128 ? 3 : 4;  // per SM 8.0
  static constexpr int kTile = kMaskBlock * kD * 2;
  static constexpr int kSharedBytes = (1 + kStages) * kTile;
};

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    masked_forward_kernel(const __grid_constant__ MaskedArguments args) {
  constexpr int kD = Shape::kD, kDim = Shape::kDim, kStages = Shape::kStages;
  constexpr int kRows = Shape::kRows;
  extern __shared__ __align__(1024) char memory[];
  const uint32_t q_tile = shared_address(memory), ring = q_tile + Shape::kTile;
  const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * kRows;
  const uint32_t q_lane = Tile<kD>::rows_first(q_tile + row0 * Tile<kD>::kRowBytes, lane);
  const uint32_t k_lane = Tile<kD>::columns_first(ring, lane);
  const uint32_t v_lane = Tile<kD>::rows_first(ring, lane);

  const BlockMaskView& mask = args.mask;
  const MaskedPiece piece(mask, mask.row_order, mask.query_blocks, args.batch, args.heads);
  const BlockList list = BlockList::of_queries(mask);
  const int begin = list.begin[piece.list], count = list.begin[piece.list + 1] - begin;
  const int key_head = piece.head / (args.heads / args.key_heads);

  using Loader = SeenLoader<kD, Shape::kThreads>;
  const masks::BlockTokens own = mask.queries_of(piece.block);
  Loader(args.q.of(piece.sequence), piece.head, args.head_dim, mask.step)
      .load(q_tile, own.first, bits_of(own));
  const Loader keys(args.k.of(piece.sequence), key_head, args.head_dim, mask.step);
  const Loader values(args.v.of(piece.sequence), key_head, args.head_dim, mask.step);

  BlockEntry entry{}, next{};
  if (count > 0) {
    entry.fetch_number(list, begin);
    if (count > 1) next.fetch_number(list, begin + 1);
    entry.fetch_seen(list);
  }
  int filling = 0;  // next stage to fill
  const auto fill = [&](const Loader& loader, const BlockEntry& of, bool exists) {
    if (exists) loader.load(ring + filling * Shape::kTile, mask.keys_of(of.index).first, of.seen);
    commit_copies();
    filling = filling + 1 == kStages ? 0 : filling + 1;
  };
  fill(keys, entry, count > 0);
  if constexpr (kStages == 3) fill(values, entry, count > 0);

  Accumulators<kRows, kDim> out;
  out.clear();
  SoftmaxRows<kRows> softmax;
  softmax.clear();
  uint32_t q[Shape::kKeepQ ? kDim / 16 : 1][kRows / 16][4];
  int reading = 0;
  for (int t = 0; t < count; ++t) {
    const bool more = t + 1 < count;
    QueryBits<kRows> bits;
    const auto fetch_bits = [&] {
      if (!entry.full())
        bits.fetch(mask.bits + static_cast<int64_t>(entry.bitmap) * kMaskBlock, row0, lane);
    };
    if constexpr (kD <= 64) fetch_bits();  // early, if there are registers
    if (more) next.fetch_seen(list);
    BlockEntry after{};
    if (t + 2 < count) after.fetch_number(list, begin + t + 2);
    wait_copies<kStages - 2>();
    __syncthreads();
    if constexpr (kStages == 2) fill(values, entry, true);
    const uint32_t k_at = k_lane + reading * Shape::kTile;
    Accumulators<kRows, kMaskBlock> s;
    if constexpr (Shape::kKeepQ) {
      if (t == 0) {
#pragma unroll
        for (int d = 0; d < kDim / 16; ++d) {
#pragma unroll
          for (int r = 0; r < kRows / 16; ++r)
            load_matrices(q[d][r], Tile<kD>::block(q_lane, r, d));
        }
      }
      s.clear();
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        multiply_step<T>(s, q[d], [&](int c, uint32_t(&b)[4]) {
          load_matrices(b, Tile<kD>::block(k_at, c, d));
        });
      }
    } else {
      multiply_tiles<T, kD, kDim>(s, q_lane, k_at);
    }
    reading = reading + 1 == kStages ? 0 : reading + 1;
    if constexpr (kStages == 3) fill(keys, next, more);
    if constexpr (kD > 64) fetch_bits();
    if (!entry.full()) bits.hide(s, kNone, lane);
    softmax.add(s, out, args.scale * kLog2e);
    wait_copies<kStages - 2>();
    __syncthreads();
    fill(kStages == 3 ? values : keys, next, more);
    add_weighted_rows<T, kD>(out, s, v_lane + reading * Shape::kTile);
    reading = reading + 1 == kStages ? 0 : reading + 1;
    entry = next;
    next = after;
  }
  const int64_t head_row = static_cast<int64_t>(piece.sequence) * args.heads + piece.head;
  softmax.finish(out, args.scale, args.lse + head_row * mask.queries + own.first + row0 * mask.step,
                 static_cast<int>(own.count) - row0, mask.step, lane);
  // Through Q's memory, of which a warp reads only its own rows.
  wait_copies<0>();
  if (count == 0) __syncthreads();
  write_rows<T, kD>(args.out.of(piece.sequence), piece.head, own, mask.step, args.head_dim, q_tile,
                    row0, out, 1.0f, lane);
}

}  // namespace seqfuse::ops::attention::sm80
