// The gradients of the relative biases: sums of dS over sequences, heads and pairs.
//
// All heads share the biases, so a block computes a tile's dS for one head after the other and adds
// them up in registers; the sums along diagonals and by bucket are then done only once. A block
// takes a tile of keys and loops over the tiles of queries that see it. It writes its sums to its
// own row of the workspace; a second kernel adds the rows in order. Nothing is atomic in floating
// point.
#pragma once

#include "ops/kernels/attention/sm80/backward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

template <int kD_, bool kIsShort = false>
struct BiasGradientShape {
  static constexpr int kM = kBackwardQueries, kN = kBiasGradientKeys;
  // Columns of head_dim per product; fewer than all if shared memory is short.
  static constexpr int kD = kIsShort ? least(kD_, 128) : kD_, kParts = kD_ / kD;
  static constexpr int kThreads = 128, kBlocks = kD <= 64 ? 2 : 1;
  static constexpr int kStages = kD == 256 || kIsShort ? 1 : 2;
  static constexpr int kTile = kM * kD * 2, kPitch = kN + 1;
  static constexpr int kReplicas = 8;
  struct Shared {
    RowMask rows[kM];
    Worker::Shared work;
    BiasShared<kM, kN> bias;
    float sums[kM * kPitch];                  // dS of a tile, summed over heads
    int histograms[kReplicas][kBuckets + 1];  // of one tile; the odd pitch avoids bank conflicts
    float by_bucket[kBuckets];                // of all tiles so far
    unsigned largest[kThreads / 32];          // max |dS|, as bits
  };
  static constexpr int kTiles = 4 * kStages * kTile;
  static constexpr int kSharedBytes = kTiles + sizeof(Shared);
  static_assert(kM == kN);
};

// Sums by bucket are in fixed point: integer addition is associative, so atomics give the same bits
// from run to run. A tile's largest value gets 17 bits, so 4096 of them cannot overflow; the values
// come from products of numbers with 8 or 11 bits.
struct FixedPoint {
  float scale, inverse;
  __device__ __forceinline__ explicit FixedPoint(unsigned largest_bits) {
    const int exponent = static_cast<int>(largest_bits >> 23);  // biased, as in a float
    const int biased = min(127 + 17 - (exponent - 127), 253);
    scale = __int_as_float(biased << 23);
    inverse = __int_as_float((254 - biased) << 23);
  }
};

// multiply_rows for one of several parts of the columns; the first part clears the sums.
template <class T, int kD>
__device__ __forceinline__ void multiply_part(Accumulators<32, 32>& sums, int part, uint32_t tile_a,
                                              uint32_t tile_b, int row_a, int row_b, int lane) {
  if (part == 0) {
    multiply_rows<T, kD>(sums, tile_a, tile_b, row_a, row_b, lane);
    return;
  }
  Accumulators<32, 32> more;
  multiply_rows<T, kD>(more, tile_a, tile_b, row_a, row_b, lane);
  sums.add(more);
}

template <class T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    bias_gradient_kernel(const __grid_constant__ Arguments args) {
  constexpr int kD = Shape::kD, kM = Shape::kM, kN = Shape::kN, kThreads = Shape::kThreads;
  constexpr int kPitch = Shape::kPitch, kParts = Shape::kParts;
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<typename Shape::Shared*>(memory + Shape::kTiles);
  const uint32_t tiles_at = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = warp % 2 * 32, query0 = warp / 2 * 32;  // of this warp's first key and query
  const BiasArguments& b = args.bias;

  Worker worker(args.list, 1, &shared.work);
  shared.bias.template load_tables<kThreads>(b);
  // Adds shared.sums of a tile to shared.by_bucket.
  const auto add_by_bucket = [&](int slot) {
    unsigned largest = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) largest = max(largest, shared.largest[w]);
    if (largest == 0) return;
    const FixedPoint fixed(largest);
    for (int e = threadIdx.x; e < Shape::kReplicas * (kBuckets + 1); e += kThreads)
      shared.histograms[0][e] = 0;
    __syncthreads();
    // A thread has one key and every other query.
    const int c = threadIdx.x % kN;
    const double time = shared.bias.times[0][c];
    int* histogram = shared.histograms[lane % Shape::kReplicas];
#pragma unroll 4
    for (int q = threadIdx.x / kN; q < kM; q += kThreads / kN) {
      const float value = shared.sums[q * kPitch + c];
      if (value != 0)
        atomicAdd(histogram + shared.bias.tables.bucket(shared.bias.times_after[slot][q] - time),
                  __float2int_rn(value * fixed.scale));
    }
    __syncthreads();
    const bool finite = largest < 0x7f800000u;
    for (int e = threadIdx.x; e < kBuckets; e += kThreads) {
      int total = 0;
#pragma unroll
      for (int r = 0; r < Shape::kReplicas; ++r) total += shared.histograms[r][e];
      shared.by_bucket[e] +=
          finite ? static_cast<float>(total) * fixed.inverse : __uint_as_float(0x7fc00000);
    }
  };
  while (!worker.done()) {
    const WorkItem& item = worker.item();
    const int n0 = item.tile * kN, keys = min(kN, item.keys - n0);
    const int shift = item.keys - item.queries;
    float* row =
        args.bias_sums + (tile_base(item.k_begin, item.sequence, kN) + item.tile) * args.bias_row;
    for (int e = threadIdx.x; e < args.bias_row; e += kThreads) row[e] = 0;
    for (int e = threadIdx.x; e < kBuckets; e += kThreads) shared.by_bucket[e] = 0;
    shared.bias.template load_times<kThreads>(b, item, n0, 0);
    worker.ask();
    QueryTiles<kN> tiles;
    // step: counts heads and their parts.
    const auto fill = [&](int tile, int step, int stage, int slot) {
      if (tile >= 0) {
        const int m0 = tile * kM, rows = item.queries - m0, head = step / kParts;
        const int column = step % kParts * kD, columns = args.head_dim - column;
        const uint32_t to = tiles_at + stage * 4 * Shape::kTile;
        const auto part_of = [&](HeadsView view) {
          view.data += column * 2;
          return view;
        };
        TileLoader<kN, kD, kThreads>(part_of(args.k), item.k_begin + n0, head)
            .load(to, args.k, 0, keys, columns);
        TileLoader<kN, kD, kThreads>(part_of(args.v), item.k_begin + n0, head)
            .load(to + Shape::kTile, args.v, 0, keys, columns);
        TileLoader<kM, kD, kThreads>(part_of(args.q), item.q_begin + m0, head)
            .load(to + 2 * Shape::kTile, args.q, 0, rows, columns);
        TileLoader<kM, kD, kThreads>(part_of(args.dout), item.q_begin + m0, head)
            .load(to + 3 * Shape::kTile, args.dout, 0, rows, columns);
        if (step == 0) {
          shared.bias.template load_times_after<kThreads>(b, item, shift + m0, slot);
          shared.bias.template load_position<kThreads>(b, shift + m0, n0, slot);
        }
      }
      commit_copies();
    };

    auto visit = tiles.next(args.tile_masks, item);
    int stage = 0, slot = 0;
    fill(visit.tile(), 0, 0, 0);
    while (visit.tile() >= 0) {
      const auto next = tiles.next(args.tile_masks, item);
      const int m0 = visit.tile() * kM;
      if (threadIdx.x < kM) {
        const int i = min(m0 + static_cast<int>(threadIdx.x), item.queries - 1);
        shared.rows[threadIdx.x] = row_mask(args.mask, item, shift + i);
      }
      Accumulators<32, 32> bias, sum, s, dp;
      sum.clear();
      const int steps = args.heads * kParts;
      for (int step = 0; step < steps; ++step) {
        const bool last = step + 1 == steps;
        const auto fill_next = [&](int to) {
          fill(last ? next.tile() : visit.tile(), last ? 0 : step + 1, to, last ? slot ^ 1 : slot);
        };
        wait_copies<0>();
        __syncthreads();
        if constexpr (Shape::kStages == 2) fill_next(stage ^ 1);
        if (step == 0) {
          bias.clear();
          add_bias<true>(bias, shared.bias, args, slot, 0, slot, row0, query0, lane);
        }
        const uint32_t at = tiles_at + stage * 4 * Shape::kTile;
        multiply_part<T, kD>(s, step % kParts, at, at + 2 * Shape::kTile, row0, query0, lane);
        multiply_part<T, kD>(dp, step % kParts, at + Shape::kTile, at + 3 * Shape::kTile, row0,
                             query0, lane);
        if (step % kParts == kParts - 1) {
#pragma unroll
          for (int r = 0; r < 2; ++r)
#pragma unroll
            for (int c = 0; c < 4; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e)
                s.v[r][c][e] = fmaf(s.v[r][c][e], args.alpha, bias.v[r][c][e]);
          silu_and_gradient(s, dp, 0.5f);
          sum.add(dp);
        }
        if constexpr (Shape::kStages == 2) {
          stage ^= 1;
        } else if (!last) {
          __syncthreads();
          fill_next(0);
        }
      }
      if (!visit.covered()) hide_transposed(sum, 0.0f, shared.rows, query0, n0 + row0, lane);
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 8; ++c)
          shared.sums[(query0 + c / 2 * 8 + 2 * (lane & 3) + c % 2) * kPitch + row0 + 8 * r +
                      (lane >> 2)] = sum.v[r / 2][c / 2][r % 2 * 2 + c % 2];
      unsigned largest = 0;
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            largest = max(largest, __float_as_uint(fabsf(sum.v[r][c][e])));
      largest = __reduce_max_sync(0xffffffffu, largest);
      if (lane == 0) shared.largest[warp] = largest;
      __syncthreads();
      if (b.position && threadIdx.x < kM + kN - 1) {
        const int diagonal = static_cast<int>(threadIdx.x) - (kM - 1);  // key - query
        float total = 0;
#pragma unroll 4
        for (int q = max(0, -diagonal); q < min(kM, kN - diagonal); ++q)
          total += shared.sums[q * kPitch + q + diagonal];
        // Relative to the last query and this tile's first key.
        const int at = item.queries - 1 - m0 + diagonal;
        if (at >= 0) row[at] += total;
      }
      if (b.tables) add_by_bucket(slot);
      __syncthreads();
      if constexpr (Shape::kStages == 1) fill(next.tile(), 0, 0, slot ^ 1);
      slot ^= 1;
      visit = next;
    }
    worker.fetch();
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    if (b.tables) {
      for (int e = threadIdx.x; e < kBuckets; e += kThreads)
        row[args.max_seqlen + kN + e] = shared.by_bucket[e];
    }
    __syncthreads();
    worker.advance();
  }
}

}  // namespace seqfuse::ops::attention::sm80
