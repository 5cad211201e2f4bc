// Copies between strided tensor rows and packed scratch, with or without transposition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ops/cpu/row_vectors.h"

namespace seqfuse::ops::cpu {

namespace detail {

// Exchanges bit kBit of the row index with the same bit of the lane index.
template <class T, int kBit, size_t... kLane>
inline void swap_index_bit(Vector<T>* rows, std::index_sequence<kLane...>) {
  constexpr int kW = kLanes<T>;
#pragma GCC unroll 16
  for (int r = 0; r < kW; ++r) {
    if (r & kBit) continue;
    const auto a = rows[r], b = rows[r + kBit];
    rows[r] = __builtin_shufflevector(a, b, ((kLane & kBit) ? kLane - kBit + kW : kLane)...);
    rows[r + kBit] = __builtin_shufflevector(a, b, ((kLane & kBit) ? kLane + kW : kLane + kBit)...);
  }
}

// Transposes a square of vectors held in registers.
template <class T, int kBit = kLanes<T> / 2>
inline void transpose(Vector<T>* rows) {
  if constexpr (kBit > 0) {
    swap_index_bit<T, kBit>(rows, std::make_index_sequence<kLanes<T>>());
    transpose<T, kBit / 2>(rows);
  }
}

// First columns of the squares that cover [0, cols); the last square may overlap the one before it.
template <class T, class Body>
inline void for_each_square(int64_t cols, Body&& body) {
  for (int64_t c = 0; c + kLanes<T> < cols; c += kLanes<T>) body(c);
  body(cols - kLanes<T>);
}

}  // namespace detail

// out[c][lane] = scale * in[first + lane][c] for one vector of lanes and all cols. Row indices are
// clamped to [0, rows), so lanes outside repeat an existing row.
template <class T>
[[gnu::noinline]] void pack_transposed(T* out, int64_t out_ld, const T* in, int64_t in_ld,
                                       int64_t first, int64_t rows, int64_t cols, T scale) {
  constexpr int kW = kLanes<T>;
  const T* row[kW];
  for (int l = 0; l < kW; ++l) row[l] = in + std::clamp<int64_t>(first + l, 0, rows - 1) * in_ld;
  if (cols < kW) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int l = 0; l < kW; ++l) out[c * out_ld + l] = scale * row[l][c];
    }
    return;
  }
  detail::for_each_square<T>(cols, [&](int64_t c) {
    Vector<T> square[kW];
#pragma GCC unroll 16
    for (int l = 0; l < kW; ++l) square[l] = scale * load(row[l] + c);
    detail::transpose<T>(square);
#pragma GCC unroll 16
    for (int l = 0; l < kW; ++l) store(out + (c + l) * out_ld, square[l]);
  });
}

// The inverse: out[first + lane][c] = scale * in[c][lane] for the lanes whose row lies in [0,
// rows).
template <class T>
[[gnu::noinline]] void unpack_transposed(T* out, int64_t out_ld, const T* in, int64_t in_ld,
                                         int64_t first, int64_t rows, int64_t cols, T scale) {
  constexpr int kW = kLanes<T>;
  const int begin = static_cast<int>(std::clamp<int64_t>(-first, 0, kW));
  const int end = static_cast<int>(std::clamp<int64_t>(rows - first, 0, kW));
  out += first * out_ld;
  if (cols < kW) {
    for (int l = begin; l < end; ++l) {
      for (int64_t c = 0; c < cols; ++c) out[l * out_ld + c] = scale * in[c * in_ld + l];
    }
    return;
  }
  detail::for_each_square<T>(cols, [&](int64_t c) {
    Vector<T> square[kW];
#pragma GCC unroll 16
    for (int l = 0; l < kW; ++l) square[l] = scale * load(in + (c + l) * in_ld);
    detail::transpose<T>(square);
    for (int l = begin; l < end; ++l) store(out + l * out_ld + c, square[l]);
  });
}

// out[r][c] = scale * in[r][c], r < rows; columns [cols, out_ld) are set to zero.
template <class T>
void pack_rows(T* out, int64_t out_ld, const T* in, int64_t in_ld, int64_t rows, int64_t cols,
               T scale) {
  for (int64_t r = 0; r < rows; ++r, out += out_ld, in += in_ld) {
    for (int64_t c = 0; c < cols; ++c) out[c] = scale * in[c];
    std::fill(out + cols, out + out_ld, T(0));
  }
}

// out[r][c] = in[r][c].
template <class T>
void unpack_rows(T* out, int64_t out_ld, const T* in, int64_t in_ld, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(in + r * in_ld, cols, out + r * out_ld);
}

}  // namespace seqfuse::ops::cpu
