// The running softmax of attention under a mask.
#pragma once

#include "ops/kernels/attention/sm80/masked_parts.cuh"

namespace seqfuse::ops::attention::sm80 {

// Running softmax of a lane's queries: the rows of its accumulators.
template <int kRows>
struct SoftmaxRows {
  static constexpr int kR = kRows / 16;
  float most[kR][2], total[kR][2];  // total: of this lane's keys only

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[r][half] = kNone;
        total[r][half] = 0;
      }
  }

  // Turns scores into weights and rescales out. scale: log2(e) times that of scores; positive.
  template <int kDim>
  __device__ __forceinline__ void add(Accumulators<kRows, kMaskBlock>& s,
                                      Accumulators<kRows, kDim>& out, float scale) {
#pragma unroll
    for (int r = 0; r < kR; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now = most[r][half];
#pragma unroll
        for (int c = 0; c < kMaskBlock / 8; ++c)
          now = fmaxf(now, fmaxf(s.v[r][c][2 * half], s.v[r][c][2 * half + 1]));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
        now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
        // Without any key yet, all weights must be 0, not NaN.
        const float base = now == kNone ? 0.0f : now * scale;
        const float factor = exp2_approximate(fmaf(most[r][half], scale, -base));
        float sum = 0;
#pragma unroll
        for (int c = 0; c < kMaskBlock / 8; ++c) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s.v[r][c][2 * half + e];
            x = exp2_approximate(fmaf(x, scale, -base));
            sum += x;
          }
        }
        most[r][half] = now;
        total[r][half] = fmaf(total[r][half], factor, sum);
#pragma unroll
        for (int c = 0; c < kDim / 8; ++c) {
          out.v[r][c][2 * half] *= factor;
          out.v[r][c][2 * half + 1] *= factor;
        }
      }
    }
  }

  // Divides out by the totals, and writes the log-sum-exp of the rows that exist. scale: that of
  // scores. lse: of the warp's first row, rows of which exist from there, step numbers apart.
  template <int kDim>
  __device__ __forceinline__ void finish(Accumulators<kRows, kDim>& out, float scale, float* lse,
                                         int rows, int step, int lane) {
#pragma unroll
    for (int r = 0; r < kR; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = total[r][half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const float inverse = sum == 0 ? 0.0f : __fdividef(1.0f, sum);
#pragma unroll
        for (int c = 0; c < kDim / 8; ++c) {
          out.v[r][c][2 * half] *= inverse;
          out.v[r][c][2 * half + 1] *= inverse;
        }
        const int row = 16 * r + 8 * half + (lane >> 2);
        if ((lane & 3) == 0 && row < rows)
          lse[row * step] = sum == 0 ? kNone : fmaf(most[r][half], scale, __logf(sum));
      }
    }
  }
};

}  // namespace seqfuse::ops::attention::sm80
