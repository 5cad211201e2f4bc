// Attention of one token over a cache as its formula says, in float64. The cache is written.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <vector>

#include "ops/torch/decode/decode.h"

namespace seqfuse::oracle {

// x [dim], turned by the angles of a row.
inline at::Tensor rotated(const at::Tensor& x, const float* cos, const float* sin, int64_t half) {
  at::Tensor y = x.clone();
  for (int64_t i = 0; i < half; ++i) {
    const at::Tensor a = x[i], b = x[i + half];
    y[i] = a * static_cast<double>(cos[i]) - b * static_cast<double>(sin[i]);
    y[i + half] = b * static_cast<double>(cos[i]) + a * static_cast<double>(sin[i]);
  }
  return y;
}

// q, k, v [rows, heads, dim], keys and values [rows, heads, slots, dim], all float64.
inline at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   at::Tensor keys, at::Tensor values,
                                   const std::vector<ops::DecodeAttentionRow>& rows,
                                   const ops::DecodeAngles& angles) {
  at::Tensor out = at::zeros_like(q);
  for (int64_t row = 0; row < q.size(0); ++row) {
    const ops::DecodeAttentionRow& seen = rows[row];
    if (!seen.active) continue;
    const int64_t at_row = row * angles.half;
    for (int64_t head = 0; head < q.size(1); ++head) {
      const float* cos = angles.cos.data() + at_row;
      const float* sin = angles.sin.data() + at_row;
      keys[row][head][seen.slot] = rotated(k[row][head], cos, sin, angles.half);
      values[row][head][seen.slot] = v[row][head];
      const at::Tensor query = rotated(q[row][head], cos, sin, angles.half);
      const at::Tensor start_query = rotated(q[row][head], angles.start_cos.data() + at_row,
                                             angles.start_sin.data() + at_row, angles.half);
      at::Tensor sum = at::zeros({q.size(2)}, at::kDouble);
      double total = 0;
      const auto add = [&](const at::Tensor& towards, int64_t begin, int64_t end) {
        for (int64_t slot = begin; slot < end; ++slot) {
          const double score = at::dot(towards, keys[row][head][slot]).item<double>();
          const double weight = std::exp(score / std::sqrt(static_cast<double>(q.size(2))));
          sum += weight * values[row][head][slot];
          total += weight;
        }
      };
      add(start_query, 0, seen.first);
      for (const auto& range : seen.newest) add(query, range.begin, range.end);
      out[row][head] = sum / total;
    }
  }
  return out;
}

}  // namespace seqfuse::oracle
