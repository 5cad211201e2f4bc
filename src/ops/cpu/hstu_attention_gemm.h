// Vectors and the register-blocked products that HSTU attention is made of. Everything here works
// on packed scratch of one tile; T is float or double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace seqfuse::ops::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kBlockRows = 8;  // 32 registers: 16 sums of two vectors
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kBlockRows = 4;  // 16 registers
#else
inline constexpr int kVectorBytes = 16, kBlockRows = 4;
#endif

template <class T>
struct Vector {
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
  using Type [[gnu::vector_size(kVectorBytes)]] = T;
  using Unaligned [[gnu::vector_size(kVectorBytes), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};
template <class T>
inline constexpr int kLanes = Vector<T>::kLanes;

template <class T>
inline typename Vector<T>::Unaligned& vector_at(T* p) {
  return *reinterpret_cast<typename Vector<T>::Unaligned*>(p);
}
template <class T>
inline const typename Vector<T>::Unaligned& vector_at(const T* p) {
  return *reinterpret_cast<const typename Vector<T>::Unaligned*>(p);
}

namespace detail {

// out[r][0, kVecs vectors) (+)= sum_k a[r * kRowStride + k * a_step] * b[k][...], r < kRows.
template <class T, int kRows, int kVecs, int kRowStride, bool kAccumulate>
inline void multiply_block(T* out, int64_t out_ld, const T* a, int64_t a_step, const T* b,
                           int64_t b_ld, int64_t depth) {
  constexpr int kW = kLanes<T>;
  typename Vector<T>::Type sums[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      if constexpr (kAccumulate) {
        sums[r][c] = vector_at(out + r * out_ld + c * kW);
      } else {
        sums[r][c] = typename Vector<T>::Type{};
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k, a += a_step, b += b_ld) {
    typename Vector<T>::Type row[kVecs];
    for (int c = 0; c < kVecs; ++c) row[c] = vector_at(b + c * kW);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVecs; ++c) sums[r][c] += a[r * kRowStride] * row[c];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kVecs; ++c) vector_at(out + r * out_ld + c * kW) = sums[r][c];
  }
}

// The last rows, fewer than kBlockRows.
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
