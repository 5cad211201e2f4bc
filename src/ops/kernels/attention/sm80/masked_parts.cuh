// Shared by the kernels of softmax attention under a mask: arguments, the listed blocks, loads that
// leave out what nobody sees, and the bits of partial blocks.
#pragma once

#include "masks/block_mask_view.h"
#include "ops/kernels/attention/sm80/rows.cuh"

namespace seqfuse::ops::attention::sm80 {

using masks::BlockMaskView;

constexpr int kMaskBlock = 64;  // queries and keys of a block
constexpr float kLog2e = 1.44269504f;
constexpr float kNone = -__builtin_huge_valf();  // of a score that is not seen

// A tensor [batch, heads, rows, head_dim], rows aligned to 16 bytes.
struct BatchView {
  char* data;
  int64_t batch_bytes, head_bytes, row_bytes;

  __device__ __forceinline__ HeadsView of(int64_t b) const {
    return {data + b * batch_bytes, row_bytes, head_bytes, 16};
  }
};

struct MaskedArguments {
  BlockMaskView mask;
  BatchView q, k, v, out, dout, dq, dk, dv;
  float* lse;         // [batch, heads, queries]
  const float* dlse;  // or null
  float* delta;
  int batch, heads, key_heads, head_dim;
  float scale;  // positive
};

using MaskedKernel = void (*)(MaskedArguments);

// One list of blocks: a block of queries with its keys, or, transposed, a block of keys.
struct BlockList {
  const int* begin;  // first entry of each list
  const int* index;  // the block on the other side
  const int* bitmap;
  const uint64_t* seen;  // of the rows that are loaded for an entry

  static __device__ __forceinline__ BlockList of_queries(const BlockMaskView& m) {
    return {m.row_begin, m.column, m.bitmap, m.seen};
  }
  static __device__ __forceinline__ BlockList of_keys(const BlockMaskView& m) {
    return {m.column_begin, m.row, m.column_bitmap, m.seen + 1};
  }
};

// Which list and head a thread block has. Lists with the most blocks come first, each for all the
// sequences that share it and all heads.
struct MaskedPiece {
  int list, block, sequence, head;

  __device__ __forceinline__ MaskedPiece(const BlockMaskView& mask, const int* order,
                                         int64_t blocks, int batch, int heads) {
    const bool shared = mask.batch == 1;
    const int each = shared ? batch * heads : heads;
    const int i = blockIdx.x % each;
    list = order[blockIdx.x / each];
    head = i % heads;
    block = shared ? list : static_cast<int>(list % blocks);
    sequence = shared ? i / heads : static_cast<int>(list / blocks);
  }
};

// An entry of a list. Its fields depend on each other's loads, so they are fetched one step before
// they are needed.
struct BlockEntry {
  int index, bitmap;
  uint64_t seen;

  __device__ __forceinline__ void fetch_number(const BlockList& list, int entry) {
    index = list.index[entry];
    bitmap = list.bitmap[entry];
  }
  __device__ __forceinline__ void fetch_seen(const BlockList& list) {
    seen = bitmap < 0 ? ~uint64_t{0} : list.seen[2 * static_cast<int64_t>(bitmap)];
  }
  __device__ __forceinline__ bool full() const { return bitmap < 0; }
};

// Copies the 64 rows of a block of one head to a tile; rows whose bit is not set, and columns from
// head_dim on, become zeros and are not read. Called by threads 0 to kThreads - 1.
template <int kD, int kThreads>
class SeenLoader {
 public:
  // step: between the rows of a block.
  __device__ __forceinline__ SeenLoader(const HeadsView& view, int head, int head_dim, int step)
      : source_(view.data + row() * step * view.row_bytes + head * view.head_bytes + chunk() * 16),
        row_bytes_(view.row_bytes),
        step_bytes_(kStep * step * view.row_bytes),
        inside_(chunk() * 8 < head_dim) {}

  // first: the block's first row.
  __device__ __forceinline__ void load(uint32_t tile, int64_t first, uint64_t seen) const {
    const char* source = source_ + first * row_bytes_;
    uint32_t to[kPeriod];
#pragma unroll
    for (int j = 0; j < kPeriod; ++j) to[j] = tile + Tile<kD>::offset(row() + j * kStep, chunk());
    if (!inside_) seen = 0;
    seen >>= row();
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto bits = static_cast<uint32_t>(seen);
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        copy_async(to[i % kPeriod] + i / kPeriod * kPeriod * kStep * Tile<kD>::kRowBytes, source,
                   bits & 1u << i * kStep);
        source += step_bytes_;
      }
#pragma unroll
      for (int j = 0; j < kPeriod; ++j) to[j] += 32 * Tile<kD>::kRowBytes;
      seen >>= 32;
    }
  }

 private:
  static constexpr int kChunks = Tile<kD>::kChunks, kStep = kThreads / kChunks;
  static constexpr int kCopies = 32 / kStep;  // for 32 rows
  // After so many steps the permutation of a tile's chunks repeats.
  static constexpr int kPeriod = kStep >= 8 ? 1 : 8 / kStep;
  static_assert(kStep <= 32 && kCopies % kPeriod == 0);
  static __device__ __forceinline__ int row() { return threadIdx.x / kChunks; }
  static __device__ __forceinline__ int chunk() { return threadIdx.x % kChunks; }

  const char* source_;
  int64_t row_bytes_, step_bytes_;
  bool inside_;
};

// The bits of the rows that exist of a block.
__device__ __forceinline__ uint64_t bits_of(const masks::BlockTokens& tokens) {
  return tokens.count >= kMaskBlock ? ~uint64_t{0} : (uint64_t{1} << tokens.count) - 1;
}

// What a lane's queries see of a partial block: its rows of accumulators [kRows, 64], from row0 on.
template <int kRows>
struct QueryBits {
  uint64_t word[kRows / 16][2];

  __device__ __forceinline__ void fetch(const uint64_t* bits, int row0, int lane) {
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        word[r][half] = bits[row0 + 16 * r + 8 * half + (lane >> 2)];
  }
  // Replaces what is not seen.
  __device__ __forceinline__ void hide(Accumulators<kRows, kMaskBlock>& s, float hidden,
                                       int lane) const {
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint64_t mine = word[r][half] >> (2 * (lane & 3));
        const auto low = static_cast<uint32_t>(mine), high = static_cast<uint32_t>(mine >> 32);
#pragma unroll
        for (int c = 0; c < kMaskBlock / 8; ++c) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const uint32_t bit = 1u << (8 * (c & 3) + e);
            if (!((c < 4 ? low : high) & bit)) s.v[r][c][2 * half + e] = hidden;
          }
        }
      }
    }
  }
};

__device__ __forceinline__ float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// acc = rows of one tile times rows of another, over kDim of their kD columns.
template <class T, int kD, int kDim, int kRows>
__device__ __forceinline__ void multiply_tiles(Accumulators<kRows, kMaskBlock>& acc, uint32_t a_at,
                                               uint32_t b_at) {
  acc.clear();
#pragma unroll 4  // more would take registers for fragments
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t a[kRows / 16][4];
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) load_matrices(a[r], Tile<kD>::block(a_at, r, d));
    multiply_step<T>(
        acc, a, [&](int c, uint32_t(&b)[4]) { load_matrices(b, Tile<kD>::block(b_at, c, d)); });
  }
}

// acc += weights [kRows, 64] times the rows of a tile (rows_first).
template <class T, int kD, int kRows, int kDim>
__device__ __forceinline__ void add_weighted_rows(Accumulators<kRows, kDim>& acc,
                                                  const Accumulators<kRows, kMaskBlock>& weights,
                                                  uint32_t at) {
#pragma unroll
  for (int k = 0; k < kMaskBlock / 16; ++k) {
    uint32_t a[kRows / 16][4];
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float* x = &weights.v[r][2 * k + e / 2][e % 2 * 2];
        a[r][e] = pack<T>(x[0], x[1]);
      }
    }
    multiply_step<T>(acc, a, [&](int c, uint32_t(&b)[4]) {
      load_matrices_transposed(b, Tile<kD>::block(at, k, c));
    });
  }
}

// Writes a warp's rows of a block, by way of its rows of a tile.
template <class T, int kD, int kRows, int kDim>
__device__ __forceinline__ void write_rows(HeadsView to, int head, const masks::BlockTokens& tokens,
                                           int step, int head_dim, uint32_t tile, int row0,
                                           const Accumulators<kRows, kDim>& acc, float scale,
                                           int lane) {
  store_accumulators<T, kD>(tile, row0, 0, acc, scale, lane);
  __syncwarp();
  RowsView rows(to, tokens.first, head, head_dim);
  rows.row_bytes *= step;
  store_rows<T, kD, kRows, kDim>(rows, static_cast<int>(tokens.count), tile, row0, 0, lane);
}

}  // namespace seqfuse::ops::attention::sm80
