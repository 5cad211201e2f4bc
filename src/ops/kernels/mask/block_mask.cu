#include "ops/kernels/mask/block_mask.h"

namespace seqfuse::ops {
namespace {

using masks::kBlock;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// What `blocks` holds: first the state; then kFull, kEmpty or the number of the bitmap.
constexpr int32_t kIsEmpty = 0, kIsPartial = 1, kIsFull = 2;
constexpr int32_t kFull = -1, kEmpty = -2;

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % 32);
}
// The number of this warp in the grid.
__device__ __forceinline__ int64_t warp_id() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

__device__ __forceinline__ uint64_t or_over_warp(uint64_t x) {
  return uint64_t{__reduce_or_sync(kAllLanes, static_cast<uint32_t>(x))} |
         uint64_t{__reduce_or_sync(kAllLanes, static_cast<uint32_t>(x >> 32))} << 32;
}

struct Place {
  int64_t b;
  masks::BlockTokens queries, keys;
  int32_t step;

  __device__ Place(const BlockMaskBuild& build, int64_t block) : step(build.step) {
    const int64_t key_blocks = build.key_blocks(), query_blocks = build.query_blocks();
    b = block / key_blocks / query_blocks;
    queries = masks::tokens_of_block(block / key_blocks % query_blocks, query_blocks,
                                     build.rule.queries, step);
    keys = masks::tokens_of_block(block % key_blocks, key_blocks, build.rule.keys, step);
  }
  // Whether tokens exist, and queries and keys that are multiples of step apart.
  __device__ bool possible(const BlockMaskBuild& build) const {
    return queries.count > 0 && keys.count > 0 &&
           (keys.first - queries.first - build.rule.shift()) % step == 0;
  }
  // The keys that a query of the block sees; 0 for queries that do not exist.
  __device__ uint64_t word(const BlockMaskBuild& build, int query) const {
    return query < queries.count
               ? masks::seen_keys(build.rule, b, queries.first + query * step, keys.first, step)
               : 0;
  }
};

// One warp a block: each lane evaluates two queries, unless the bounds decide.
__global__ void classify_kernel(const __grid_constant__ BlockMaskBuild build, int64_t blocks) {
  const int64_t block = warp_id();
  if (block >= blocks) return;
  const Place place(build, block);
  masks::Verdict verdict{.some = false, .missing = true};
  if (place.possible(build)) {
    const auto end = [&](const masks::BlockTokens& tokens) {
      return tokens.first + (tokens.count - 1) * place.step + 1;
    };
    verdict = masks::judge_block(
        build.rule, place.b,
        {place.queries.first, end(place.queries), place.keys.first, end(place.keys)},
        [](int, masks::Verdict bounds) { return bounds; });
  }
  int32_t state = kIsEmpty;
  unsigned allowed = 0;
  if (verdict.some) {
    if (!verdict.missing && place.keys.count == kBlock) {
      state = kIsFull;
      allowed = static_cast<unsigned>(place.queries.count * kBlock);
    } else {
      bool any = false, all = true;
      for (int i = 0; i < 2; ++i) {
        const int query = lane_id() + 32 * i;
        const uint64_t word = place.word(build, query);
        any |= word != 0;
        all &= word == ~uint64_t{0} || query >= place.queries.count;
        allowed += static_cast<unsigned>(__popcll(word));
      }
      allowed = __reduce_add_sync(kAllLanes, allowed);
      any = __any_sync(kAllLanes, any);
      all = __all_sync(kAllLanes, all);
      state = all ? kIsFull : any ? kIsPartial : kIsEmpty;
    }
  }
  if (lane_id() > 0) return;
  build.blocks[block] = state;
  if (allowed > 0) atomicAdd(build.allowed, static_cast<unsigned long long>(allowed));
}

// One warp a list: counts its blocks, and for rows its bitmaps, to the element after its own.
__global__ void count_kernel(const __grid_constant__ BlockMaskBuild build, int64_t rows,
                             int64_t columns) {
  const int64_t list = warp_id();
  if (list >= rows + columns) return;
  const int64_t keys = build.key_blocks(), queries = build.query_blocks();
  int entries = 0, bitmaps = 0;
  if (list < rows) {
    for (int64_t k = lane_id(); k < keys; k += 32) {
      const int32_t state = build.blocks[list * keys + k];
      entries += state != kIsEmpty;
      bitmaps += state == kIsPartial;
    }
  } else {
    const int64_t b = (list - rows) / keys, k = (list - rows) % keys;
    for (int64_t q = lane_id(); q < queries; q += 32)
      entries += build.blocks[(b * queries + q) * keys + k] != kIsEmpty;
  }
  entries = static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(entries)));
  bitmaps = static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(bitmaps)));
  if (lane_id() > 0) return;
  if (list < rows) {
    build.row_begin[list + 1] = entries;
    build.row_bitmaps[list + 1] = bitmaps;
  } else {
    build.column_begin[list - rows + 1] = entries;
  }
}

// One block of threads for each of the three arrays: running sums, in place, from 0.
__global__ void scan_kernel(const __grid_constant__ BlockMaskBuild build, int64_t rows,
                            int64_t columns) {
  int32_t* const values = blockIdx.x == 0   ? build.row_begin
                          : blockIdx.x == 1 ? build.row_bitmaps
                                            : build.column_begin;
  const int64_t count = blockIdx.x == 2 ? columns : rows;
  __shared__ int32_t warp_sums[32];
  int32_t carried = 0;
  if (threadIdx.x == 0) values[0] = 0;
  for (int64_t first = 0; first < count; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    int32_t sum = i < count ? values[i + 1] : 0;
    for (int step = 1; step < 32; step *= 2) {
      const int32_t other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane_id() >= step) sum += other;
    }
    if (lane_id() == 31) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    int32_t total = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x / 32); ++w) {
      if (w == static_cast<int>(threadIdx.x / 32)) sum += carried + total;
      total += warp_sums[w];
    }
    carried += total;
    if (i < count) values[i + 1] = sum;
    __syncthreads();
  }
}

// One warp a block row: its entries in order, and the numbers of bitmaps in `blocks`.
__global__ void fill_rows_kernel(const __grid_constant__ BlockMaskBuild build, int64_t rows) {
  const int64_t row = warp_id();
  if (row >= rows) return;
  const int64_t keys = build.key_blocks();
  int32_t entry = build.row_begin[row], number = build.row_bitmaps[row];
  const unsigned before = (1u << lane_id()) - 1;
  for (int64_t first = 0; first < keys; first += 32) {
    const int64_t k = first + lane_id();
    int32_t* const at = build.blocks + row * keys + k;
    const int32_t state = k < keys ? *at : kIsEmpty;
    const unsigned listed = __ballot_sync(kAllLanes, state != kIsEmpty);
    const unsigned partial = __ballot_sync(kAllLanes, state == kIsPartial);
    if (k < keys) {
      const int32_t mine = state == kIsPartial ? number + __popc(partial & before)
                           : state == kIsFull  ? kFull
                                               : kEmpty;
      *at = mine;
      if (state != kIsEmpty) {
        const int32_t to = entry + __popc(listed & before);
        build.column[to] = static_cast<int32_t>(k);
        build.bitmap[to] = mine;
      }
    }
    entry += __popc(listed);
    number += __popc(partial);
  }
}

// One warp a column of blocks.
__global__ void fill_columns_kernel(const __grid_constant__ BlockMaskBuild build, int64_t columns) {
  const int64_t column = warp_id();
  if (column >= columns) return;
  const int64_t keys = build.key_blocks(), queries = build.query_blocks();
  const int64_t b = column / keys, k = column % keys;
  int32_t entry = build.column_begin[column];
  const unsigned before = (1u << lane_id()) - 1;
  for (int64_t first = 0; first < queries; first += 32) {
    const int64_t q = first + lane_id();
    const int32_t mine = q < queries ? build.blocks[(b * queries + q) * keys + k] : kEmpty;
    const unsigned listed = __ballot_sync(kAllLanes, mine != kEmpty);
    if (mine != kEmpty) {
      const int32_t to = entry + __popc(listed & before);
      build.row[to] = static_cast<int32_t>(q);
      build.column_bitmap[to] = mine;
    }
    entry += __popc(listed);
  }
}

// One warp a block: the bitmap, if it has one.
__global__ void fill_bits_kernel(const __grid_constant__ BlockMaskBuild build, int64_t blocks) {
  const int64_t block = warp_id();
  if (block >= blocks) return;
  const int32_t number = build.blocks[block];
  if (number < 0) return;
  const Place place(build, block);
  uint64_t keys = 0, queries = 0;
  for (int i = 0; i < 2; ++i) {
    const int query = lane_id() + 32 * i;
    const uint64_t word = place.word(build, query);
    build.bits[int64_t{number} * kBlock + query] = word;
    keys |= word;
    queries |= uint64_t{word != 0} << query;
  }
  keys = or_over_warp(keys);
  queries = or_over_warp(queries);
  if (lane_id() > 0) return;
  build.seen[2 * int64_t{number}] = keys;
  build.seen[2 * int64_t{number} + 1] = queries;
}

// A grid with a warp for each of count pieces of work; launches nothing for none.
template <class Kernel, class... Values>
cudaError_t launch_warps(Kernel kernel, int64_t count, cudaStream_t stream,
                         const BlockMaskBuild& build, Values... values) {
  if (count == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>((count + kWarps - 1) / kWarps), kThreads, 0, stream>>>(build,
                                                                                        values...);
  return cudaGetLastError();
}

struct Sizes {
  int64_t rows, columns, blocks;

  explicit Sizes(const BlockMaskBuild& build)
      : rows(build.batch * build.query_blocks()),
        columns(build.batch * build.key_blocks()),
        blocks(rows * build.key_blocks()) {}
};

}  // namespace

cudaError_t block_mask_count_cuda(const BlockMaskBuild& build, cudaStream_t stream) {
  const Sizes n(build);
  cudaError_t error = launch_warps(classify_kernel, n.blocks, stream, build, n.blocks);
  if (error == cudaSuccess)
    error = launch_warps(count_kernel, n.rows + n.columns, stream, build, n.rows, n.columns);
  if (error != cudaSuccess) return error;
  scan_kernel<<<3, 1024, 0, stream>>>(build, n.rows, n.columns);
  return cudaGetLastError();
}

cudaError_t block_mask_fill_cuda(const BlockMaskBuild& build, cudaStream_t stream) {
  const Sizes n(build);
  cudaError_t error = launch_warps(fill_rows_kernel, n.rows, stream, build, n.rows);
  if (error == cudaSuccess)
    error = launch_warps(fill_columns_kernel, n.columns, stream, build, n.columns);
  if (error == cudaSuccess)
    error = launch_warps(fill_bits_kernel, n.blocks, stream, build, n.blocks);
  return error;
}

}  // namespace seqfuse::ops
