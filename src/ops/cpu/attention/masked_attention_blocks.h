// Blocks of 64 rows for softmax attention under a mask: packed columns and rows, and the bits of
// partial blocks. A strip is two vectors of neighbouring rows, whose lanes run side by side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "masks/rule.h"
#include "ops/cpu/attention/hstu_attention_gemm.h"
#include "ops/cpu/attention/hstu_attention_pack.h"
#include "ops/cpu/row_vectors.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/simd_math.h"
#include "ops/kernels/attention/masked_attention.h"

namespace seqfuse::ops::cpu {

using masks::kBlock;

template <class T>
inline constexpr int kStripWidth = 2 * kLanes<T>;
template <class T>
inline constexpr int kStrips = kBlock / kStripWidth<T>;
// Leading dimension of packed columns; not a power of two, so that rows spread over cache sets.
template <class T>
inline constexpr int64_t kColumnsLd = kBlock + kLanes<T>;

// The rows of one head.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;

  static HeadRows of(const BatchedHeads& heads, int64_t b, int64_t h) {
    return {static_cast<T*>(heads.data) + b * heads.batch_stride + h * heads.head_stride,
            heads.row_stride};
  }
  // The rows of a block: 0 to tokens.count - 1.
  HeadRows block(const masks::BlockTokens& tokens, int32_t step) const {
    return {data + tokens.first * stride, stride * step};
  }
};

// A block's rows as strips: out[strip][d][lane] = scale * row. Those of 64 from `rows` on repeat
// others.
template <class T>
void pack_strips(T* out, HeadRows<const T> in, int64_t rows, int64_t d, T scale) {
  for (int64_t at = 0; at < kBlock; at += kLanes<T>) {
    T* to = out + at / kStripWidth<T> * d * kStripWidth<T> + at % kStripWidth<T>;
    pack_transposed(to, kStripWidth<T>, in.data, in.stride, at, rows, d, scale);
  }
}

// The inverse, for the rows that exist.
template <class T>
void unpack_strips(HeadRows<T> out, const T* in, int64_t rows, int64_t d, T scale) {
  for (int64_t at = 0; at < rows; at += kLanes<T>) {
    const T* from = in + at / kStripWidth<T> * d * kStripWidth<T> + at % kStripWidth<T>;
    unpack_transposed(out.data, out.stride, from, kStripWidth<T>, at, rows, d, scale);
  }
}

// A block's rows as columns: out[d][row].
template <class T>
void pack_columns(T* out, HeadRows<const T> in, int64_t rows, int64_t d, T scale) {
  for (int64_t at = 0; at < kBlock; at += kLanes<T>) {
    pack_transposed(out + at, kColumnsLd<T>, in.data, in.stride, at, rows, d, scale);
  }
}

// A block's rows as they are: out[row][d_ld], those whose bit is not set as zeros.
template <class T>
void pack_seen_rows(T* out, int64_t d_ld, HeadRows<const T> in, int64_t count, int64_t d, T scale,
                    uint64_t seen) {
  pack_rows(out, d_ld, in.data, in.stride, count, d, scale);
  for (int64_t r = 0; r < count; ++r)
    if ((seen >> r & 1) == 0) std::fill_n(out + r * d_ld, d, T(0));
}

// Zeros in the place of elements that are not finite, for the product of ds with packed keys or
// queries. Scores of such a row are infinite or NaN, so its ds are 0 or NaN: no sum changes, except
// that 0 times infinity adds nothing.
template <class T>
void clear_infinite(T* rows, int64_t d_ld, int64_t count, int64_t d) {
  for (int64_t r = 0; r < count; ++r, rows += d_ld)
    for (int64_t c = 0; c < d; ++c) rows[c] = rows[c] - rows[c] == T(0) ? rows[c] : T(0);
}

// A listed block: its bitmap, or null for a full one, the keys that some query sees, and the
// queries that see some key.
struct ListedBlock {
  int64_t index = 0;  // of its other side
  const uint64_t* bits = nullptr;
  uint64_t seen_keys = ~uint64_t{0}, seen_queries = ~uint64_t{0};

  ListedBlock(const masks::BlockMaskView& mask, int32_t index_, int32_t bitmap) : index(index_) {
    if (bitmap < 0) return;
    bits = mask.bits + int64_t{bitmap} * kBlock;
    seen_keys = mask.seen[2 * int64_t{bitmap}];
    seen_queries = mask.seen[2 * int64_t{bitmap} + 1];
  }
};

// The keys of a partial block that each lane of a strip of queries sees.
template <class T>
class LanesOfQueries {
 public:
  static constexpr int kWidth = kStripWidth<T>;

  LanesOfQueries(const uint64_t* bits, int strip) {
    for (int l = 0; l < kWidth; ++l) {
      const uint64_t word = bits[strip * kWidth + l];
      halves_[0][l] = static_cast<uint32_t>(word);
      halves_[1][l] = static_cast<uint32_t>(word >> 32);
      any_ |= word;
    }
  }
  bool any() const { return any_ != 0; }

  // values[key][lane] = hidden where the lane does not see the key.
  void hide(T* values, int64_t keys, T hidden) const {
    for (int64_t j = 0; j < keys; ++j, values += kWidth) {
      const uint32_t* half = halves_[j / 32];
      for (int l = 0; l < kWidth; ++l)
        values[l] = (half[l] >> (j % 32) & 1) != 0 ? values[l] : hidden;
    }
  }

 private:
  alignas(64) uint32_t halves_[2][kWidth];
  uint64_t any_ = 0;
};

// The same for a strip of keys: values[query][lane] = 0.
template <class T>
void hide_from_keys(T* values, const uint64_t* bits, int strip, int64_t queries) {
  constexpr int kWidth = kStripWidth<T>;
  for (int64_t i = 0; i < queries; ++i, values += kWidth) {
    const auto word = static_cast<uint32_t>(bits[i] >> (strip * kWidth));
    for (int l = 0; l < kWidth; ++l)
      values[l] = (word >> static_cast<uint32_t>(l) & 1) != 0 ? values[l] : T(0);
  }
}

// e^x for x <= 0, and 0 where it is too small to change a sum of at least 1. NaN stays NaN.
template <class T>
Vector<T> weight_of(Vector<T> x) {
  const Vector<T> e = exp(x);
  return x < T(-87) ? Vector<T>{} : e;
}

}  // namespace seqfuse::ops::cpu
