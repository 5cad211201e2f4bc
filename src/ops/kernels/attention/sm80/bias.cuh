// The relative bias of a tile of scores, staged in shared memory.
#pragma once

#include "ops/kernels/attention/sm80/worker.cuh"

namespace seqfuse::ops::attention::sm80 {

// For kQ queries and kK keys, in either orientation of the scores.
template <int kQ, int kK>
struct BiasShared {
  static constexpr int kDistances = kQ + kK;  // one more than occur
  TimeTables tables;
  double times_after[2][kQ];  // per query of a tile
  double times[2][kK];        // per key of a tile
  float position[2][kDistances];

  // Call once per block.
  template <int kThreads>
  __device__ void load_tables(const BiasArguments& b) {
    if (!b.tables) return;
    const auto* from = reinterpret_cast<const uint32_t*>(b.tables);
    auto* to = reinterpret_cast<uint32_t*>(&tables);
    for (int e = threadIdx.x; e < static_cast<int>(sizeof(tables) / 4); e += kThreads)
      to[e] = from[e];
  }

  // The copies join the caller's next commit group.
  template <int kThreads>
  __device__ void load_times_after(const BiasArguments& b, const WorkItem& item, int i0, int slot) {
    if (!b.tables) return;
    for (int r = threadIdx.x; r < kQ; r += kThreads)
      copy_async_small<8>(shared_address(&times_after[slot][r]),
                          b.times_after + item.k_begin + i0 + r, i0 + r < item.keys);
  }
  template <int kThreads>
  __device__ void load_times(const BiasArguments& b, const WorkItem& item, int j0, int slot) {
    if (!b.tables) return;
    for (int c = threadIdx.x; c < kK; c += kThreads)
      copy_async_small<8>(shared_address(&times[slot][c]), b.times + item.k_begin + j0 + c,
                          j0 + c < item.keys);
  }
  template <int kThreads>
  __device__ void load_position(const BiasArguments& b, int i0, int j0, int slot) {
    if (!b.position) return;
    for (int e = threadIdx.x; e < kDistances; e += kThreads) {
      const int distance = j0 - i0 + e - (kQ - 1);
      const bool valid = abs(distance) <= b.reach;
      copy_async_small<4>(shared_address(&position[slot][e]), b.position + (valid ? distance : 0),
                          valid);
    }
  }
};

// s = alpha s + bias, for rows of queries and columns of keys from (row, column) of the tile; with
// kTransposed, rows are keys. The slots are those passed to the loads.
template <bool kTransposed, int kRows, int kColumns, class Bias>
__device__ __forceinline__ void add_bias(Accumulators<kRows, kColumns>& s, const Bias& bias,
                                         const Arguments& args, int q_slot, int k_slot,
                                         int position_slot, int row, int column, int lane) {
  const int row0 = row + (lane >> 2), column0 = column + 2 * (lane & 3);
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r)
#pragma unroll
    for (int c = 0; c < kColumns / 8; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) s.v[r][c][e] *= args.alpha;
  if (args.bias.position) {
    constexpr int kQ = sizeof(bias.times_after[0]) / sizeof(double);
    const float* at =
        bias.position[position_slot] + kQ - 1 + (kTransposed ? row0 - column0 : column0 - row0);
#pragma unroll
    for (int c = 0; c < kColumns / 4; ++c)
#pragma unroll
      for (int r = 0; r < kRows / 8; ++r) {
        const int distance = c / 2 * 8 + c % 2 - 8 * r;
        s.v[r / 2][c / 2][r % 2 * 2 + c % 2] += at[kTransposed ? -distance : distance];
      }
  }
  if (args.bias.tables) {
    const double* of_rows = kTransposed ? bias.times[k_slot] : bias.times_after[q_slot];
    const double* of_columns = kTransposed ? bias.times_after[q_slot] : bias.times[k_slot];
    double t[kRows / 8];
#pragma unroll
    for (int r = 0; r < kRows / 8; ++r) t[r] = of_rows[row0 + 8 * r];
#pragma unroll
    for (int c = 0; c < kColumns / 4; ++c) {
      const double other = of_columns[column0 + c / 2 * 8 + c % 2];
#pragma unroll
      for (int r = 0; r < kRows / 8; ++r)
        s.v[r / 2][c / 2][r % 2 * 2 + c % 2] +=
            bias.tables.weights[bias.tables.bucket(t[r] - other)];
    }
  }
}

template <int kQ, int kK, bool kBias>
using MaybeBias = Either<kBias, BiasShared<kQ, kK>, char>;

}  // namespace seqfuse::ops::attention::sm80
