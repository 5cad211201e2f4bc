// Shared by the backward kernels that loop over query tiles for a tile of keys.
#pragma once

#include "ops/kernels/attention/common/tile_mask.cuh"
#include "ops/kernels/attention/sm80/bias.cuh"

namespace seqfuse::ops::attention::sm80 {

// The part (or all) of a kBackwardQueries tile that a visit of kM queries covers.
template <int kM>
struct PartOfTile {
  static constexpr int kParts = kBackwardQueries / kM;
  int64_t tile;  // index in the tile tables
  int part;

  // For queries number * kM and on of a sequence.
  __device__ __forceinline__ PartOfTile(int64_t q_begin, int sequence, int number)
      : tile(tile_base(q_begin, sequence, kBackwardQueries) + number / kParts),
        part(number % kParts) {}
};

// Iterates over the tiles of kM queries that see keys of a tile of kN. Each warp tests 32 tiles at
// a time. All other state is in shared memory, since registers are scarce.
template <int kN, int kM = kBackwardQueries>
class QueryTiles {
 public:
  // Packed in one register.
  class Visit {
   public:
    __device__ __forceinline__ Visit() : bits_(-1) {}
    __device__ __forceinline__ Visit(int tile, bool covered, bool half)
        : bits_(tile << 2 | (half ? 2 : 0) | (covered ? 1 : 0)) {}
    __device__ __forceinline__ int tile() const { return bits_ >> 2; }  // -1: no more
    __device__ __forceinline__ bool covered() const { return (bits_ & 1) != 0; }
    // With twice as many keys as queries per tile: no query sees the second half of the keys.
    __device__ __forceinline__ bool half() const {
      return kN == 2 * kBackwardQueries && (bits_ & 2) != 0;
    }

   private:
    int bits_;
  };

  __device__ __forceinline__ Visit next(const TileMask* masks, const WorkItem& item) {
    while ((whole_ | special_) == 0) {
      base_ += 32;
      const int count = (item.queries + kM - 1) / kM;
      if (base_ >= count) return {};
      const int tile = base_ + static_cast<int>(threadIdx.x % 32);
      bool visible = false, covered = false, half = false;
      if (tile < count) {
        const TileMask mask = masks[PartOfTile<kM>(item.q_begin, item.sequence, tile).tile];
        const int begin = item.tile * kN, end = min(begin + kN, item.keys);
        visible = mask.touches(begin, end);
        covered = visible && mask.covers(begin, end, item.keys);
        half = visible && !covered && !mask.touches(begin + kN / 2, end);
      }
      whole_ = __ballot_sync(0xffffffffu, visible && !half);
      special_ = __ballot_sync(0xffffffffu, covered || half);
    }
    const int bit = __ffs(whole_ | special_) - 1;
    const bool whole = (whole_ >> bit & 1) != 0, special = (special_ >> bit & 1) != 0;
    whole_ &= ~(1u << bit);
    special_ &= ~(1u << bit);
    return {base_ + bit, whole && special, !whole};
  }

 private:
  int base_ = -32;
  // One bit per tile. Covered tiles are in both, half-seen tiles in special_ only.
  unsigned whole_ = 0, special_ = 0;
};

// Sets accumulators that the mask hides to a value. j and row: first key and first query, relative
// to the sequence or to the tile, like the masks.
template <int kRows, int kColumns, class Mask>
__device__ __forceinline__ void hide_transposed(Accumulators<kRows, kColumns>& x, float value,
                                                const Mask* rows, int row, int j, int lane) {
#pragma unroll
  for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Mask m = rows[row + 8 * c + 2 * (lane & 3) + e];
#pragma unroll
      for (int r = 0; r < kRows / 8; ++r)
        if (!m.sees(j + 8 * r + (lane >> 2))) x.v[r / 2][c][r % 2 * 2 + e] = value;
    }
  }
}

// A hidden score, halved: tanh is -1, so its SiLU and silu' are exactly 0 (or -0).
constexpr float kHiddenHalf = -1e30f;

// Returns silu(2 h) and sets h to kScoreGradientFactor silu'(2 h).
__device__ __forceinline__ float silu_and_gradient(float& h) {
  const float t = tanh_approximate(h), one_and_t = 1 + t, silu = h * one_and_t;
  h = fmaf(one_and_t, fmaf(-h, t, h), one_and_t);
  return silu;
}

// s = silu(2 s scale), dp = dp kScoreGradientFactor silu'(2 s scale).
template <int kRows, int kColumns>
__device__ __forceinline__ void silu_and_gradient(Accumulators<kRows, kColumns>& s,
                                                  Accumulators<kRows, kColumns>& dp, float scale) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns / 8; ++c) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float h = s.v[r][c][e] * scale, t = tanh_approximate(h);
        const float dp_and_t = fmaf(dp.v[r][c][e], t, dp.v[r][c][e]);
        dp.v[r][c][e] = fmaf(dp_and_t, fmaf(-h, t, h), dp_and_t);
        s.v[r][c][e] = fmaf(h, t, h);
      }
    }
  }
}

// Fragments of A from accumulators of 16 columns.
template <class T, int kRows, int kColumns>
__device__ __forceinline__ void to_fragments(uint32_t (&a)[kRows / 16][4],
                                             const Accumulators<kRows, kColumns>& x, int k) {
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float* v = &x.v[r][2 * k + e / 2][e % 2 * 2];
      a[r][e] = pack<T>(v[0], v[1]);
    }
  }
}

// A warp's share of dq's sums for a tile of queries: 32 rows and some columns.
template <class Shape>
struct DqOfWarp {
  static constexpr int kGroups = Shape::kM / 32;  // of rows
  static constexpr int kColumns = kGroups * Shape::kD / Shape::kWarps;

  // Offset of a lane's first element for queries tile * kM and on.
  static __device__ __forceinline__ int64_t place(const Arguments& args, int64_t q_begin,
                                                  int sequence, int tile, int head, int warp,
                                                  int lane) {
    const PartOfTile<Shape::kM> at(q_begin, sequence, tile);
    return (at.tile * args.heads + head) * (kBackwardQueries * Shape::kD) +
           at.part * (Shape::kM * Shape::kD) + warp * (32 * kColumns) + lane * 4;
  }
};

// Adds dS' K of a tile of keys to dq's sums of a tile of queries. All warps take part, in blocks of
// 32 rows; elements are ordered so that a warp's atomics cover whole cache lines. half: first half
// of the keys only.
template <class Shape>
__device__ __forceinline__ void add_dq(const Arguments& args, const WorkItem& item, int head,
                                       int tile, bool half, uint32_t ds_tile, uint32_t k_tile,
                                       int warp, int lane) {
  using T = typename Shape::T;
  using Scores = Tile<Shape::kM>;
  using Wide = Tile<Shape::kD>;
  using Dq = DqOfWarp<Shape>;
  constexpr int kDqColumns = Dq::kColumns;
  const int group = warp % Dq::kGroups, columns = warp / Dq::kGroups;
  const uint32_t ds_columns = Scores::columns_first(ds_tile, lane);
  const uint32_t k_rows = Wide::rows_first(k_tile, lane);
  Accumulators<32, kDqColumns> dq;
  dq.clear();
#pragma unroll
  for (int k = 0; k < Shape::kN / 16; ++k) {
    if (half && k == Shape::kN / 32) break;
    uint32_t a[2][4];
    load_matrices_transposed(a[0], Scores::block(ds_columns, k, 2 * group));
    load_matrices_transposed(a[1], Scores::block(ds_columns, k, 2 * group + 1));
    multiply_step<T>(dq, a, [&](int c, uint32_t(&b)[4]) {
      load_matrices_transposed(b, Wide::block(k_rows, k, columns * (kDqColumns / 16) + c));
    });
  }
  float* to = args.dq_sums + Dq::place(args, item.q_begin, item.sequence, tile, head, warp, lane);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int c = 0; c < kDqColumns / 8; ++c)
      add_to_global(to + (r * (kDqColumns / 8) + c) * 128, dq.v[r][c]);
}

// The layout in which a backward kernel leaves dq's sums; the kernel that reads them depends on
// nothing else.
template <class T_, int kD_, int kM_, int kWarps_>
struct DqSums {
  using T = T_;
  static constexpr int kD = kD_, kM = kM_, kWarps = kWarps_, kThreads = 32 * kWarps;
};
template <class Shape>
using DqSumsOf = DqSums<typename Shape::T, Shape::kD, Shape::kM, Shape::kWarps>;

// Converts sums to dq. One block per (tile, head, sequence), with the backward kernel's threads.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    finish_dq_kernel(const __grid_constant__ Arguments args) {
  using T = typename Shape::T;
  constexpr int kD = Shape::kD, kM = Shape::kM;
  using Dq = DqOfWarp<Shape>;
  constexpr int kDqColumns = Dq::kColumns;
  __shared__ __align__(1024) char memory[kM * kD * 2];
  const int b = blockIdx.z, head = blockIdx.y, m0 = blockIdx.x * kM;
  const int64_t begin = offset_at(args.q_offsets, args.int32_offsets, b);
  const int queries =
      static_cast<int>(offset_at(args.q_offsets, args.int32_offsets, b + 1) - begin);
  if (m0 >= queries) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const float* from =
      args.dq_sums + Dq::place(args, begin, b, static_cast<int>(blockIdx.x), head, warp, lane);
  Accumulators<32, kDqColumns> dq;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int c = 0; c < kDqColumns / 8; ++c) {
      const float4 v = *reinterpret_cast<const float4*>(from + (r * (kDqColumns / 8) + c) * 128);
      dq.v[r][c][0] = v.x;
      dq.v[r][c][1] = v.y;
      dq.v[r][c][2] = v.z;
      dq.v[r][c][3] = v.w;
    }
  }
  const uint32_t tile = shared_address(memory);
  const int row0 = warp % Dq::kGroups * 32, column0 = warp / Dq::kGroups * kDqColumns;
  store_accumulators<T, kD>(tile, row0, column0, dq, query_key_scale(args), lane);
  __syncwarp();
  store_gradient_rows<T, kD, 32, kDqColumns>(args.dq, begin + m0, head, args.head_dim, queries - m0,
                                             tile, row0, column0, lane);
}

}  // namespace seqfuse::ops::attention::sm80
