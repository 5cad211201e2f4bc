// Shared by the kernels for SM 9.0 of softmax attention under a mask: tiles that the copy engine
// loads, and what a warp sees of them.
#pragma once

#include "ops/kernels/attention/sm80/masked_parts.cuh"
#include "ops/kernels/common/sm90/tensor_copy.cuh"
#include "ops/kernels/common/sm90/wgmma.cuh"

namespace seqfuse::ops::attention::sm90 {

using namespace attention::sm80;
using namespace ops::sm90;

constexpr int kMaskedThreads = 128;  // a warp group
constexpr int kMaskedTile = kMaskBlock * Tile<64>::kRowBytes;
constexpr uint64_t kAllKeys = ~uint64_t{0};

struct MaskedTiles {
  CUtensorMap q, k, v, dout;     // dout: of backward only
  int group;                     // heads of q to one of k
  int query_blocks, key_blocks;  // of a residue
};

// Errors: cudaErrorInvalidValue if the driver refuses a map.
cudaError_t make_masked_tiles(MaskedTiles& tiles, const MaskedArguments& args, bool backward);

// Where a map has a block: its tokens have one residue, and follow each other there.
struct PlaceOfBlock {
  int residue = 0, row;

  __device__ __forceinline__ PlaceOfBlock(int block, int blocks_of_residue, int step) {
    if (step > 1) {
      residue = block / blocks_of_residue;
      block -= residue * blocks_of_residue;
    }
    row = block * kMaskBlock;
  }
};

__device__ __forceinline__ void copy_block(uint32_t tile, const CUtensorMap& map,
                                           const PlaceOfBlock& at, int head, int sequence,
                                           uint32_t barrier) {
  copy_tile(tile, map, at.residue, at.row, head, sequence, barrier);
}

// What a lane's queries see of a listed block: all, or what its bitmap says.
struct SeenBlock {
  int bitmap = -1;
  uint64_t keys = kAllKeys;  // that some query of the block sees
  QueryBits<16> bits;

  __device__ __forceinline__ void fetch(const BlockMaskView& mask, int number, int row0, int lane) {
    bitmap = number;
    keys = kAllKeys;
    if (bitmap < 0) return;
    keys = mask.seen[2 * static_cast<int64_t>(bitmap)];
    bits.fetch(mask.bits + static_cast<int64_t>(bitmap) * kMaskBlock, row0, lane);
  }
};

// Rows that nobody sees may be anything, and 0 times NaN would be NaN. By all threads, two a row;
// then show_to_products() and a barrier.
__device__ __forceinline__ void clear_unseen_rows(uint32_t tile, uint64_t seen) {
  const int row = threadIdx.x / 2;
  if (seen >> row & 1) return;
  const uint32_t at = tile + row * Tile<64>::kRowBytes + threadIdx.x % 2 * 64;
#pragma unroll
  for (int i = 0; i < 4; ++i) store_shared_16(at + 16 * i, uint4{});
}

}  // namespace seqfuse::ops::attention::sm90
