// Tiles of 16-bit elements in shared memory, and the mma.m16n8k16 fragments read from them.
//
// A tile has rows of kD elements. The 16-byte chunks of a row are permuted by the row's number,
// which puts the eight rows of an 8 x 8 matrix in different banks.
#pragma once

#include "ops/kernels/common/heads_view.h"
#include "ops/kernels/common/sm80/ptx.cuh"

namespace seqfuse::ops::sm80 {

template <int kD>
struct Tile {
  static constexpr int kRowBytes = 2 * kD, kChunks = kD / 8;

  static __device__ __forceinline__ int swizzle(int row) {
    return kD == 32 ? (row >> 1) & 3 : row & 7;
  }
  static __device__ __forceinline__ uint32_t offset(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ swizzle(row)) << 4);
  }

  // Lane addresses of 16 x 16 blocks, for a base aligned to a row. Block (r, c), in units of 16,
  // is at block(lane address, r, c).
  //   rows_first: matrices in the order (0, 0), (1, 0), (0, 1), (1, 1): A as stored, B transposed
  //   columns_first: (0, 0), (0, 1), (1, 0), (1, 1): B as stored, A transposed
  static __device__ __forceinline__ uint32_t rows_first(uint32_t base, int lane) {
    return base + offset(lane & 15, lane >> 4);
  }
  static __device__ __forceinline__ uint32_t columns_first(uint32_t base, int lane) {
    return base + offset((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
  }
  static __device__ __forceinline__ uint32_t block(uint32_t lane_address, int r, int c) {
    // Only the low bits of the chunk number are permuted; the rest is a compile-time offset.
    return (lane_address ^ ((c & 3) << 5)) + (c >> 2) * 128 + r * 16 * kRowBytes;
  }
};

// Copies rows of one head to tiles; elements outside the rows and columns become zeros. A thread
// keeps its start address, so the next tile costs one multiplication.
template <int kRows, int kD, int kThreads>
class TileLoader {
 public:
  __device__ __forceinline__ TileLoader(const HeadsView& view, int64_t first_row, int head)
      : source_(view.data + (first_row + row()) * view.row_bytes + head * view.head_bytes +
                chunk() * 16) {}

  TileLoader() = default;

  // Loads rows [begin, begin + kRows); rows of them exist.
  __device__ __forceinline__ void load(uint32_t tile, const HeadsView& view, int begin, int rows,
                                       int columns) const {
    if (view.grain == 16) {
      load_aligned(tile, view, begin, rows, columns);
    } else {
      load_by_elements(tile, source_ + begin * view.row_bytes, view, rows, columns);
    }
  }
  // The same for a grain of 16 only: skips the branch for other cases.
  __device__ __forceinline__ void load_aligned(uint32_t tile, const HeadsView& view, int begin,
                                               int rows, int columns) const {
    const char* source = source_ + begin * view.row_bytes;
    const bool inside = chunk() * 8 < columns;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      copy_async(tile + Tile<kD>::offset(row() + i * kStep, chunk()), source,
                 row() + i * kStep < rows && inside);
      source += kStep * view.row_bytes;
    }
  }

 private:
  static constexpr int kChunks = Tile<kD>::kChunks, kStep = kThreads / kChunks;
  static_assert(kRows % kStep == 0);
  static __device__ __forceinline__ int row() { return threadIdx.x / kChunks; }
  static __device__ __forceinline__ int chunk() { return threadIdx.x % kChunks; }

  // For unaligned rows, or a head_dim that is not a multiple of 8: slower, and separate so that it
  // takes no registers from the fast path.
  static __device__ __forceinline__ void load_by_elements(uint32_t tile, const char* source,
                                                          const HeadsView& view, int rows,
                                                          int columns) {
#pragma unroll 1
    for (int at = row(); at < kRows; at += kStep) {
      const uint32_t to = tile + Tile<kD>::offset(at, chunk());
      const int count = at < rows ? columns - chunk() * 8 : 0;
      if (view.grain == 4) {
#pragma unroll
        for (int e = 0; e < 4; ++e) copy_async_small<4>(to + 4 * e, source + 4 * e, 2 * e < count);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const auto* half = reinterpret_cast<const uint16_t*>(source) + 2 * e;
          const uint32_t low = 2 * e < count ? half[0] : 0;
          const uint32_t high = 2 * e + 1 < count ? half[1] : 0;
          store_shared(to + 4 * e, low | high << 16);
        }
      }
      source += kStep * view.row_bytes;
    }
  }

  const char* source_;
};

// Accumulators [kRows, kColumns] of a warp: blocks of 16 x 8. Lane l holds rows l / 4 and l / 4 +
// 8, columns 2 (l % 4) and the next, of each.
template <int kRows, int kColumns>
struct Accumulators {
  static constexpr int kR = kRows / 16, kC = kColumns / 8;
  float v[kR][kC][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[r][c][e] = 0;
  }
  __device__ __forceinline__ void add(const Accumulators& other) {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[r][c][e] += other.v[r][c][e];
  }
  __device__ __forceinline__ void scale(float by) {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) v[r][c][e] *= by;
  }
};

// acc [16 kR, 8 kC] += A B over 16 of the inner dimension. A's fragments are given; b(c, r) loads
// B's fragments of 16 columns from 16 c.
template <class T, int kRows, int kColumns, class FetchB>
__device__ __forceinline__ void multiply_step(Accumulators<kRows, kColumns>& acc,
                                              const uint32_t (&a)[kRows / 16][4],
                                              FetchB&& fetch_b) {
#pragma unroll
  for (int c = 0; c < kColumns / 16; ++c) {
    uint32_t b[4];
    fetch_b(c, b);
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) {
      multiply_add<T>(acc.v[r][2 * c], a[r], b[0], b[1]);
      multiply_add<T>(acc.v[r][2 * c + 1], a[r], b[2], b[3]);
    }
  }
}

// acc = rows of one tile times rows of another, [kRows, kColumns], for one warp. Lane addresses:
// rows_first for A, columns_first for B. Calls after(d) between steps.
template <class T, int kD, int kRows, int kColumns, class After>
__device__ __forceinline__ void multiply_rows_at(Accumulators<kRows, kColumns>& acc, uint32_t a_at,
                                                 uint32_t b_at, After&& after) {
  acc.clear();
#pragma unroll
  for (int d = 0; d < kD / 16; ++d) {
    uint32_t a[kRows / 16][4];
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) load_matrices(a[r], Tile<kD>::block(a_at, r, d));
    multiply_step<T>(
        acc, a, [&](int c, uint32_t(&b)[4]) { load_matrices(b, Tile<kD>::block(b_at, c, d)); });
    after(d);
  }
}

// The same for rows from row_a and row_b.
template <class T, int kD, int kRows, int kColumns>
__device__ __forceinline__ void multiply_rows(Accumulators<kRows, kColumns>& acc, uint32_t tile_a,
                                              uint32_t tile_b, int row_a, int row_b, int lane) {
  multiply_rows_at<T, kD>(acc, Tile<kD>::rows_first(tile_a + row_a * Tile<kD>::kRowBytes, lane),
                          Tile<kD>::columns_first(tile_b + row_b * Tile<kD>::kRowBytes, lane),
                          [](int) {});
}

// Writes pairs of 16-bit elements, laid out as in a warp's accumulators [kRows, kColumns], to rows
// [row, row + kRows) of a tile, from a column on. pair(r, c, half): block (r, c), upper or lower
// eight rows. kMatrices: use store_matrices if the GPU has it.
template <int kD, int kRows, int kColumns, bool kMatrices, class Pair>
__device__ __forceinline__ void store_pairs(uint32_t tile, int row, int column, int lane,
                                            Pair&& pair) {
  using To = Tile<kD>;
  if constexpr (kMatrices && kStoresMatrices && kColumns % 16 == 0) {
    const uint32_t to = To::rows_first(tile + row * To::kRowBytes, lane);
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns / 16; ++c) {
        store_matrices(
            To::block(to, r, column / 16 + c),
            {pair(r, 2 * c, 0), pair(r, 2 * c, 1), pair(r, 2 * c + 1, 0), pair(r, 2 * c + 1, 1)});
      }
    }
  } else {
#pragma unroll
    for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + 16 * r + 8 * half + (lane >> 2);
#pragma unroll
        for (int c = 0; c < kColumns / 8; ++c)
          store_shared(tile + To::offset(at, column / 8 + c) + (lane & 3) * 4, pair(r, c, half));
      }
    }
  }
}

// Writes a warp's accumulators, scaled, in the same way.
template <class T, int kD, bool kMatrices = true, int kRows, int kColumns>
__device__ __forceinline__ void store_accumulators(uint32_t tile, int row, int column,
                                                   const Accumulators<kRows, kColumns>& acc,
                                                   float scale, int lane) {
  store_pairs<kD, kRows, kColumns, kMatrices>(tile, row, column, lane, [&](int r, int c, int half) {
    return pack<T>(acc.v[r][c][2 * half] * scale, acc.v[r][c][2 * half + 1] * scale);
  });
}

// Unpacks two values of T.
template <class T>
__device__ __forceinline__ float2 numbers(uint32_t pair) {
  if constexpr (kIsSame<T, __nv_bfloat16>) {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000)};
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
}

}  // namespace seqfuse::ops::sm80
