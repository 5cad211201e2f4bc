// Mask, relative positions and time buckets of one sequence as dense tensors on any device. Rows
// are the last `queries` positions, columns all positions.
#pragma once

#include <torch/types.h>

#include <algorithm>

#include "tests/oracles/hstu_attention.h"

namespace seqfuse::test {

inline at::Tensor dense_positions(int64_t begin, int64_t end, at::Device device) {
  return at::arange(begin, end, at::TensorOptions(device).dtype(at::kLong));
}

// j - i
inline at::Tensor dense_distances(int64_t keys, int64_t queries, at::Device device) {
  return dense_positions(0, keys, device) -
         dense_positions(keys - queries, keys, device).unsqueeze(1);
}

// bool: oracle::HstuAttentionMask for each pair.
inline at::Tensor dense_mask(const oracle::HstuAttentionMask& m, int64_t queries,
                             at::Device device) {
  const at::Tensor j = dense_positions(0, m.keys, device);
  const at::Tensor i = dense_positions(m.keys - queries, m.keys, device).unsqueeze(1);
  const int64_t history_end = m.keys - m.targets;
  const auto id = [&](const at::Tensor& p) { return (p - m.contexts + 1).clamp_min(0); };
  const auto group = [&](const at::Tensor& p) {
    return (p - history_end).floor_divide(m.group_size);
  };
  at::Tensor distance = id(i) - id(j);
  if (!m.causal) distance = distance.abs();
  const at::Tensor both_targets = i.ge(history_end).logical_and(j.ge(history_end));
  at::Tensor sees = distance.gt(0).logical_or(i.eq(j)).logical_and(
      both_targets.logical_and(group(i).ne(group(j))).logical_not());
  if (m.window > 0) {
    at::Tensor near = distance.le(m.window);
    if (m.full_rows > 0) {
      const int64_t id_of_end = std::max<int64_t>(0, history_end - m.contexts + 1);
      near = near.logical_or(id(i).ge(id_of_end - m.full_rows));
    }
    sees = sees.logical_and(near);
  }
  return sees.logical_or(i.lt(m.contexts).logical_and(j.lt(history_end)));
}

// int64: oracle::hstu_time_bucket for each pair. times [keys]; after [1]: the time after the last.
inline at::Tensor dense_time_buckets(const at::Tensor& times, const at::Tensor& after,
                                     int64_t queries, int64_t buckets) {
  const int64_t keys = times.numel();
  const at::Tensor next = at::cat({times, after}).slice(0, keys - queries + 1).unsqueeze(1);
  const at::Tensor x = (next - times).to(at::kDouble).abs().clamp_min(1);
  return x.log().div(0.301).floor().to(at::kLong).clamp_max(buckets - 1);
}

}  // namespace seqfuse::test
