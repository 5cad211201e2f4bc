// For backward_wide.cuh: computes P = silu(S) and dS = dP silu'(S) kScoreGradientFactor of a tile
// of keys and a tile of queries in registers and stores them in shared memory. The two classes
// below split the two products among warps in different ways.
#pragma once

#include "ops/kernels/attention/sm80/backward_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

// Addresses of the tiles, and other inputs of the scores.
struct ScoreTiles {
  uint32_t k, v, q, dout, p, ds;
  uint32_t silu_gradients;           // memory for ScoresInHalves
  uint32_t arrived_q, arrived_dout;  // of the copies
  int parity;                        // phase parity to wait for
  bool half;                         // only the first half of the keys is visible
};

// Each warp computes both products for 32 keys and some queries.
template <class T, int kD, int kN, int kM>
struct ScoresTogether {
  static constexpr int kWarps = kN * kM / 1024;  // 32 x 32 scores each
  static constexpr int kKeyGroups = kN / 32, kQueries = kM / (kWarps / kKeyGroups);
  static constexpr int kSharedBytes = 0;
  static constexpr bool kCompleteAtEnter = true;  // P and dS are in registers by then

  // finish(s, row, query) applies scale, bias and mask to S [32, kQueries]. Every warp calls
  // enter() once, before P and dS are written.
  template <class Finish, class Enter>
  static __device__ __forceinline__ void make(const ScoreTiles& at, Finish&& finish, Enter&& enter,
                                              int warp, int lane) {
    // Warps w and w + 4 share a scheduler and get different halves of the keys.
    const int part = warp / kKeyGroups, query0 = part * kQueries;
    const int row0 = (warp % kKeyGroups ^ kKeyGroups / 2 * part) * 32;
    if (at.half && row0 >= kN / 2) {
      enter();
      return;
    }
    Accumulators<32, kQueries> s, dp;
    wait_arrivals(at.arrived_q, at.parity);
    multiply_rows<T, kD>(s, at.k, at.q, row0, query0, lane);
    finish(s, row0, query0);
    wait_arrivals(at.arrived_dout, at.parity);
    // Overlap SiLU with the product for dP: one 16 x 8 block of S per step.
    constexpr int kC = kQueries / 8;
    static_assert(kD / 16 == 2 * kC);
    uint32_t p[2][kC][2];
    multiply_rows_at<T, kD>(dp, Tile<kD>::rows_first(at.v + row0 * Tile<kD>::kRowBytes, lane),
                            Tile<kD>::columns_first(at.dout + query0 * Tile<kD>::kRowBytes, lane),
                            [&](int d) {
                              const int r = d / kC, c = d % kC;
#pragma unroll
                              for (int half = 0; half < 2; ++half) {
                                float* const x = &s.v[r][c][2 * half];
                                const float silu = silu_and_gradient(x[0]);
                                p[r][c][half] = pack<T>(silu, silu_and_gradient(x[1]));
                              }
                            });
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int e = 0; e < 4; ++e) dp.v[r][c][e] *= s.v[r][c][e];
    uint32_t ds[2][kC][2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < kC; ++c)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          ds[r][c][half] = pack<T>(dp.v[r][c][2 * half], dp.v[r][c][2 * half + 1]);
    enter();
    store_pairs<kM, 32, kQueries, true>(at.p, row0, query0, lane,
                                        [&](int r, int c, int half) { return p[r][c][half]; });
    store_pairs<kM, 32, kQueries, true>(at.ds, row0, query0, lane,
                                        [&](int r, int c, int half) { return ds[r][c][half]; });
  }
};

// Warps 0 to 3 compute S and P, warps 4 to 7 dP and dS, in larger blocks, which read less from
// shared memory. Warp w passes silu'(S) to warp w + 4 in float16: 11 bits, of which dS keeps 8 or
// 11.
template <class T, int kD, int kN, int kM>
struct ScoresInHalves {
  static constexpr int kWarps = 8, kRows = kN / 2, kQueries = kM / 2;
  static constexpr int kPairBytes = kRows * kQueries * 2, kSharedBytes = 4 * kPairBytes;
  static constexpr bool kCompleteAtEnter = false;

  template <class Finish, class Enter>
  static __device__ __forceinline__ void make(const ScoreTiles& at, Finish&& finish, Enter&& enter,
                                              int warp, int lane) {
    const int row0 = warp % 2 * kRows, query0 = warp % 4 / 2 * kQueries;
    const bool second = warp >= 4;
    const uint32_t gradients = at.silu_gradients + warp % 4 * kPairBytes + lane * 16;
    const int pair = 1 + warp % 4;  // named barrier of two warps; 0 is the block's
    Accumulators<kRows, kQueries> x;
    wait_arrivals(second ? at.arrived_dout : at.arrived_q, at.parity);
    multiply_rows<T, kD>(x, second ? at.v : at.k, second ? at.dout : at.q, row0, query0, lane);
    if (second) {
      enter();
      sync_threads(pair, 64);
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
        for (int c = 0; c < kQueries / 8; c += 2) {
          const uint4 packed = load_shared_16(gradients + (r * kQueries / 16 + c / 2) * 512);
          const uint32_t g[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
          for (int e = 0; e < 8; e += 2) {
            const float2 two = __half22float2(reinterpret_cast<const __half2&>(g[e / 2]));
            x.v[r][c + e / 4][e % 4] *= two.x;
            x.v[r][c + e / 4][e % 4 + 1] *= two.y;
          }
        }
      }
    } else {
      finish(x, row0, query0);
      enter();
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
        for (int c = 0; c < kQueries / 8; c += 2) {
          uint32_t g[4];
#pragma unroll
          for (int e = 0; e < 8; e += 2) {
            float* const values = &x.v[r][c + e / 4][e % 4];
            float g0 = values[0], g1 = values[1];
            values[0] = silu_and_gradient(g0);
            values[1] = silu_and_gradient(g1);
            g[e / 2] = pack<__half>(g0, g1);
          }
          store_shared_16(gradients + (r * kQueries / 16 + c / 2) * 512, {g[0], g[1], g[2], g[3]});
        }
      }
      sync_threads(pair, 64);  // not needed for correctness; without it racecheck reports a race
    }
    // store_matrices was slower here.
    store_accumulators<T, kM, false>(second ? at.ds : at.p, row0, query0, x, 1.0f, lane);
  }
};

}  // namespace seqfuse::ops::attention::sm80
