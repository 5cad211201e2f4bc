// Prepares a backward pass: lists of tiles, masks of tiles, zeroed sums.
#pragma once

#include "ops/kernels/attention/common/list_kernels.cuh"
#include "ops/kernels/attention/common/tile_mask.cuh"

namespace seqfuse::ops::attention {

// One warp computes the mask of one tile of queries.
__device__ __forceinline__ void make_tile_mask(const ListArguments& a, const MaskOptions& mask,
                                               int sequence, int tile, TileMask* masks) {
  const WorkItem item = checked_item_of(a, sequence, "masks of tiles");
  const int lane = threadIdx.x % 32, m0 = tile * a.tile_rows;
  if (m0 >= item.queries) return;
  const int end = min(item.queries, m0 + a.tile_rows), shift = item.keys - item.queries;
  TileMask all = combine_lanes(row_mask(mask, item, shift + min(m0 + lane, end - 1)));
  for (int row = m0 + 32; row < end; row += 32) {
    all = combine(all, combine_lanes(row_mask(mask, item, shift + min(row + lane, end - 1))));
  }
  if (lane == 0) masks[tile_base(item.q_begin, item.sequence, a.tile_rows) + tile] = all;
}

constexpr int kMostLists = 3;  // in a backward pass: keys, keys for biases, queries
constexpr int kZerosOfThread = 8;
constexpr int kZerosOfBlock = kPrepareThreads * kZerosOfThread;

// The work of the preparation kernel: its blocks write the lists, then the masks, then the zeros.
struct BackwardPreparation {
  ListArguments lists[kMostLists];
  int list_count;
  ListArguments tiles;  // tiles of queries, whose masks are computed
  int tiles_of_longest;
  MaskOptions mask;
  TileMask* masks;
  uint4* zeros;
  int64_t zero_count;

  SEQFUSE_HOST_DEVICE int list_blocks() const { return list_count * list_slices(tiles.batch); }
  SEQFUSE_HOST_DEVICE int64_t mask_blocks() const {
    constexpr int kWarps = kPrepareThreads / 32;
    return (int64_t{tiles_of_longest} * tiles.batch + kWarps - 1) / kWarps;
  }
  SEQFUSE_HOST_DEVICE int64_t zero_blocks() const {
    return (zero_count + kZerosOfBlock - 1) / kZerosOfBlock;
  }
};

__global__ void __launch_bounds__(kPrepareThreads, 2)
    backward_prepare_kernel(const __grid_constant__ BackwardPreparation p) {
  int64_t block = blockIdx.x;
  if (block < p.list_blocks()) {
    const int slices = list_slices(p.tiles.batch), list = static_cast<int>(block) / slices;
    make_list(p.lists[list], static_cast<int>(block) - list * slices);
    return;
  }
  block -= p.list_blocks();
  if (block < p.mask_blocks()) {
    const int64_t tile = (block * kPrepareThreads + threadIdx.x) / 32;
    const int sequence = static_cast<int>(tile / p.tiles_of_longest);
    if (sequence >= p.tiles.batch) return;
    make_tile_mask(p.tiles, p.mask, sequence, static_cast<int>(tile % p.tiles_of_longest), p.masks);
    return;
  }
  block -= p.mask_blocks();
#pragma unroll
  for (int n = 0; n < kZerosOfThread; ++n) {
    const int64_t at = (block * kZerosOfThread + n) * kPrepareThreads + threadIdx.x;
    if (at < p.zero_count) p.zeros[at] = uint4{};
  }
}

}  // namespace seqfuse::ops::attention
