// Copies rows of one head from tiles in shared memory to global memory: results, and gradients that
// are multiplied by silu' on the way.
#pragma once

#include "ops/kernels/attention/common/arguments.h"
#include "ops/kernels/common/silu.cuh"
#include "ops/kernels/common/sm80/tile.cuh"

namespace seqfuse::ops::attention::sm80 {

// Instructions and tiles shared by all kernels for SM 8.0.
using namespace ops::sm80;

// Some rows of one head.
struct RowsView {
  char* data;
  int64_t row_bytes;
  int grain, columns;  // columns: head_dim

  __device__ __forceinline__ RowsView(const HeadsView& view, int64_t row, int head, int columns)
      : data(view.data + row * view.row_bytes + head * view.head_bytes),
        row_bytes(view.row_bytes),
        grain(view.grain),
        columns(columns) {}
};

// Two packed values of T times silu' of two others.
template <class T>
__device__ __forceinline__ uint32_t times_silu_gradient(uint32_t values, uint32_t z) {
  const float2 v = numbers<T>(values), x = numbers<T>(z);
  return pack<T>(v.x * silu_gradient(x.x), v.y * silu_gradient(x.y));
}

// 8 elements of a row, the first count of which exist, for a grain below 16.
__device__ __forceinline__ uint4 load_elements(const char* from, int count) {
  const auto* half = reinterpret_cast<const uint16_t*>(from);
  uint32_t v[4];
#pragma unroll
  for (int e = 0; e < 4; ++e)
    v[e] = (2 * e < count ? half[2 * e] : 0) | (2 * e + 1 < count ? half[2 * e + 1] : 0) << 16;
  return {v[0], v[1], v[2], v[3]};
}

__device__ __forceinline__ void store_elements(char* to, int count, const uint4& values) {
  auto* half = reinterpret_cast<uint16_t*>(to);
  const uint32_t v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int e = 0; e < 8; ++e)
    if (e < count) half[e] = static_cast<uint16_t>(v[e / 2] >> (e % 2 * 16));
}

// One lane's share of one step in copying a warp's rows [row, ...), columns [column, column +
// kColumns) of a tile: 8 elements, the first count of which exist.
template <int kColumns>
struct RowChunk {
  __device__ __forceinline__ RowChunk(int step, int row_begin, int column_begin, int rows,
                                      int columns, int lane)
      : row(row_begin + (step * 32 + lane) / (kColumns / 8)),
        chunk(column_begin / 8 + (step * 32 + lane) % (kColumns / 8)),
        count(row < rows ? columns - chunk * 8 : 0) {}
  __device__ __forceinline__ char* in(const RowsView& view) const {
    return view.data + row * view.row_bytes + chunk * 16;
  }
  int row, chunk, count;
};

// Copies a warp's part of a tile, as store_accumulators wrote it, to global memory. A grain below
// 16 is slower but needs little code.
template <class T, int kD, int kRows, int kColumns>
__device__ __forceinline__ void store_rows(const RowsView& to, int rows, uint32_t tile, int row,
                                           int column, int lane) {
  constexpr int kSteps = kRows * kColumns / 256;
  const auto chunk = [&](int step) {
    return RowChunk<kColumns>(step, row, column, rows, to.columns, lane);
  };
  const auto values = [&](const RowChunk<kColumns>& c) {
    return load_shared_16(tile + Tile<kD>::offset(c.row, c.chunk));
  };
  if (to.grain == 16) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const auto c = chunk(i);
      if (c.count > 0) *reinterpret_cast<uint4*>(c.in(to)) = values(c);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      const auto c = chunk(i);
      if (c.count > 0) store_elements(c.in(to), c.count, values(c));
    }
  }
}

// Sums over rows of a lane's values; in every step the lane has the same 8 columns.
template <class T, int kColumns>
class ColumnTotals {
 public:
  __device__ __forceinline__ void add(const uint4& values) {
    const uint32_t v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 two = numbers<T>(v[e]);
      sums_[2 * e] += two.x;
      sums_[2 * e + 1] += two.y;
    }
  }
  // Adds the sums over the warp, then to total, where count columns exist from the lane's first.
  __device__ __forceinline__ void add_to(float* total, int count, int lane) {
    constexpr int kWide = kColumns / 8;
    static_assert(32 % kWide == 0);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
#pragma unroll
      for (int mask = kWide; mask < 32; mask *= 2)
        sums_[e] += __shfl_xor_sync(0xffffffffu, sums_[e], mask);
      if (lane < kWide && e < count) atomicAdd(total + e, sums_[e]);
    }
  }

 private:
  float sums_[8] = {};
};

// Like store_rows, for a gradient.
template <class T, int kD, int kRows, int kColumns>
__device__ __forceinline__ void store_gradient_rows(const GradientView& gradient, int64_t first_row,
                                                    int head, int columns, int rows, uint32_t tile,
                                                    int row, int column, int lane) {
  const RowsView to(gradient.to, first_row, head, columns);
  if (!gradient.pre.data) {
    store_rows<T, kD, kRows, kColumns>(to, rows, tile, row, column, lane);
    return;
  }
  const RowsView pre(gradient.pre, first_row, head, columns);
  constexpr int kSteps = kRows * kColumns / 256;
  ColumnTotals<T, kColumns> totals;
  const auto chunk = [&](int step) {
    return RowChunk<kColumns>(step, row, column, rows, columns, lane);
  };
  const auto product = [&](const RowChunk<kColumns>& c, const uint4& z) -> uint4 {
    const uint4 v = load_shared_16(tile + Tile<kD>::offset(c.row, c.chunk));
    const uint4 result{times_silu_gradient<T>(v.x, z.x), times_silu_gradient<T>(v.y, z.y),
                       times_silu_gradient<T>(v.z, z.z), times_silu_gradient<T>(v.w, z.w)};
    totals.add(result);
    return result;
  };
  if (to.grain == 16 && pre.grain == 16) {
    // Keeps several loads in flight while earlier products are computed.
    constexpr int kAtATime = kSteps % 4 == 0 ? 4 : 1;
    uint4 z[kAtATime];
    const auto load = [&](int first) {
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) {
        const auto c = chunk(first + i);
        z[i] = c.count > 0 ? *reinterpret_cast<const uint4*>(c.in(pre)) : uint4{};
      }
    };
    load(0);
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kAtATime) {
      uint4 now[kAtATime];
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) now[i] = z[i];
      if (first + kAtATime < kSteps) load(first + kAtATime);
#pragma unroll
      for (int i = 0; i < kAtATime; ++i) {
        const auto c = chunk(first + i);
        if (c.count > 0) *reinterpret_cast<uint4*>(c.in(to)) = product(c, now[i]);
      }
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      const auto c = chunk(i);
      if (c.count > 0)
        store_elements(c.in(to), c.count, product(c, load_elements(c.in(pre), c.count)));
    }
  }
  if (gradient.totals) {
    const int first = (column / 8 + lane % (kColumns / 8)) * 8;
    const int at = static_cast<int>(first_row / 64) % kTotals * gradient.totals_row;
    totals.add_to(gradient.totals + at + head * columns + first, columns - first, lane);
  }
}

// Factor that the sums of dq and dk are multiplied by at the end.
__device__ __forceinline__ float query_key_scale(const Arguments& args) {
  return args.alpha * args.inverse_scale / kScoreGradientFactor;
}

}  // namespace seqfuse::ops::attention::sm80
