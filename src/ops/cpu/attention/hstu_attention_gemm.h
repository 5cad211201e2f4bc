// Register-blocked matrix products for HSTU attention. They work on packed scratch of one tile; T
// is float or double.
#pragma once

#include <cstdint>

#include "ops/cpu/row_vectors.h"

namespace seqfuse::ops::cpu {

// Rows per block: with two vectors per row, the accumulators fit in registers.
#if defined(__AVX512F__)
inline constexpr int kBlockRows = 8;
#elif defined(__AVX__)
inline constexpr int kBlockRows = 4;
#else
inline constexpr int kBlockRows = 2;
#endif

namespace detail {

// out[r][0, kVecs vectors) (+)= sum_k a[r * kRowStride + k * a_step] * b[k][...], r < kRows.
template <class T, int kRows, int kVecs, int kRowStride, bool kAccumulate>
inline void multiply_block(T* out, int64_t out_ld, const T* a, int64_t a_step, const T* b,
                           int64_t b_ld, int64_t depth) {
  constexpr int kW = kLanes<T>;
  Vector<T> sums[kRows][kVecs] = {};
  for (int64_t k = 0; k < depth; ++k, a += a_step, b += b_ld) {
    Vector<T> row[kVecs];
    for (int c = 0; c < kVecs; ++c) row[c] = load(b + c * kW);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVecs; ++c) sums[r][c] += a[r * kRowStride] * row[c];
    }
  }
  // Added as a whole, so that rounding errors grow with the number of blocks, not of terms.
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      T* to = out + r * out_ld + c * kW;
      store(to, kAccumulate ? load(to) + sums[r][c] : sums[r][c]);
    }
  }
}

// The remaining rows, fewer than kBlockRows.
template <class T, int kRows, int kVecs, int kRowStride, bool kAccumulate>
inline void multiply_rest(T* out, int64_t out_ld, const T* a, int64_t a_step, const T* b,
                          int64_t b_ld, int64_t rows, int64_t depth) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      multiply_block<T, kRows, kVecs, kRowStride, kAccumulate>(out, out_ld, a, a_step, b, b_ld,
                                                               depth);
    } else {
      multiply_rest<T, kRows - 1, kVecs, kRowStride, kAccumulate>(out, out_ld, a, a_step, b, b_ld,
                                                                  rows, depth);
    }
  }
}

}  // namespace detail

// out [rows, kVecs vectors] (+)= a b. Element (r, k) of a is a[r * kRowStride + k * a_step]; b is
// [depth, kVecs vectors] with leading dimension b_ld.
template <int kVecs, int kRowStride, bool kAccumulate, class T>
[[gnu::noinline]] void multiply(T* out, int64_t out_ld, const T* a, int64_t a_step, const T* b,
                                int64_t b_ld, int64_t rows, int64_t depth) {
  int64_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows) {
    detail::multiply_block<T, kBlockRows, kVecs, kRowStride, kAccumulate>(
        out + r * out_ld, out_ld, a + r * kRowStride, a_step, b, b_ld, depth);
  }
  detail::multiply_rest<T, kBlockRows - 1, kVecs, kRowStride, kAccumulate>(
      out + r * out_ld, out_ld, a + r * kRowStride, a_step, b, b_ld, rows - r, depth);
}

}  // namespace seqfuse::ops::cpu
