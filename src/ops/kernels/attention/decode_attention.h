// Attention of one new token a row over a cache of keys and values, with its rotary positions and the
// write of the token's own key and value.
//
//   keys[slot] = rotate(k), values[slot] = v
//   out = sum_j softmax_j(rotate(q) . keys[j] / sqrt(dim)) values[j], over the slots j that are seen
//
// What is seen: slots [0, first), for which q is rotated by start_cos and start_sin, and the slots of
// two ranges, for which it is rotated by cos and sin (kv_cache/rule.h says why). rotate turns the
// pairs (i, i + half) of the first 2 half elements.
//
// T, the cache's type: float32, float16 or bfloat16. All else and all arithmetic: float32.
// head_dim: any; 2 half <= head_dim. A row that is not active writes nothing, its result is 0.
// Aliasing: none of out, keys and values may overlap anything else.
// Determinism: every sum has one order; a row's result is the same bits for any number of threads and
// beside any other rows.
// Exactness: T2.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace seqfuse::ops {

struct SlotRange {
  int64_t begin = 0, end = 0;
};

struct DecodeAttentionRow {
  bool active = true;
  int64_t slot = 0;     // of the new token; it is in one of the ranges or below first
  int64_t first = 0;    // [0, first): the first tokens
  SlotRange newest[2];  // in the order of their tokens; may be empty
};

struct DecodeAttentionParams {
  const float *q, *k, *v;              // [rows, heads, head_dim], not rotated
  void *keys, *values;                 // T [rows, heads, slots, head_dim], contiguous
  const float *cos, *sin;              // [rows, half]
  const float *start_cos, *start_sin;  // [rows, half]
  const DecodeAttentionRow* row;       // [rows]
  float* out;                          // [rows, heads, head_dim], contiguous
  int64_t rows, heads, slots, head_dim, half;
  // Of q, k and v, in elements; elements of a head are adjacent.
  int64_t row_stride, head_stride;
};

// Throws Error for float64.
void decode_attention_cpu(const DecodeAttentionParams& params, DType dtype);

}  // namespace seqfuse::ops
