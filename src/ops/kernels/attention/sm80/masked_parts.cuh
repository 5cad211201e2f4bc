// Shared by the kernels of softmax attention under a mask: loads that leave out what nobody sees, the
// bits of partial blocks, and products of tiles.
#pragma once

#include "ops/kernels/attention/common/exp2.cuh"
#include "ops/kernels/attention/common/masked_lists.cuh"
#include "ops/kernels/attention/sm80/rows.cuh"

namespace seqfuse::ops::attention::sm80 {

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
