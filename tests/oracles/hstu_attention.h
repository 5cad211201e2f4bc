// HSTU attention straight from its definition: float64, one loop nest, no blocking. The formula is
// that of ops/kernels/attention/hstu_attention.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace seqfuse::oracle {

struct HstuAttentionMask {
  int64_t keys = 0, contexts = 0, targets = 0;
  int64_t group_size = 1, window = 0, full_rows = 0;  // g, w, F
  bool causal = true;

  // Whether position i sees position j, by distances between ids; all contexts have id 0.
  bool operator()(int64_t i, int64_t j) const {
    const auto id = [&](int64_t p) { return std::max<int64_t>(0, p - contexts + 1); };
    const int64_t history_end = keys - targets;
    const bool is_context = i < contexts;
    if (is_context && j < history_end) return true;
    int64_t distance = id(i) - id(j);
    if (!causal) distance = std::abs(distance);
    if (i != j && distance <= 0) return false;
    if (i >= history_end && j >= history_end &&
        (i - history_end) / group_size != (j - history_end) / group_size) {
      return false;
    }
    const bool sees_all = full_rows > 0 && id(i) >= id(history_end) - full_rows;
    return window == 0 || distance <= window || sees_all;
  }
};

inline int64_t hstu_time_bucket(int64_t difference, int64_t buckets) {
  const double x = std::max(std::fabs(static_cast<double>(difference)), 1.0);
  const auto bucket = static_cast<int64_t>(std::floor(std::log(x) / 0.301));
  return std::min(bucket, buckets - 1);
}

// Dense rows [T][H][d]; the biases may be empty.
struct HstuAttentionInput {
  int64_t heads = 1, head_dim = 1;
  std::vector<double> q, k, v, dout;
  std::vector<int64_t> q_offsets, k_offsets;
  std::vector<HstuAttentionMask> masks;  // one per sequence
  double alpha = 1, scaling_seqlen = 1;
  std::vector<double> position_bias, time_bias;
  std::vector<int64_t> timestamps, request_times;
};

struct HstuAttentionResult {
  std::vector<double> out, dq, dk, dv, d_position_bias, d_time_bias;
  // Sums of absolute terms of the last two, for cancellation.
  std::vector<double> position_terms, time_terms;
};

inline HstuAttentionResult hstu_attention(const HstuAttentionInput& in) {
  HstuAttentionResult r;
  r.out.resize(in.q.size());
  r.dq.resize(in.q.size());
  r.dk.resize(in.k.size());
  r.dv.resize(in.k.size());
  r.d_position_bias.resize(in.position_bias.size());
  r.d_time_bias.resize(in.time_bias.size());
  r.position_terms.resize(in.position_bias.size());
  r.time_terms.resize(in.time_bias.size());
  const auto buckets = static_cast<int64_t>(in.time_bias.size());
  const auto center = static_cast<int64_t>(in.position_bias.size()) / 2;
  for (size_t b = 0; b + 1 < in.q_offsets.size(); ++b) {
    const int64_t q0 = in.q_offsets[b], k0 = in.k_offsets[b];
    const int64_t queries = in.q_offsets[b + 1] - q0, keys = in.k_offsets[b + 1] - k0;
    for (int64_t h = 0; h < in.heads; ++h) {
      for (int64_t i = keys - queries; i < keys; ++i) {
        const int64_t qi = ((q0 + i - (keys - queries)) * in.heads + h) * in.head_dim;
        for (int64_t j = 0; j < keys; ++j) {
          if (!in.masks[b](i, j)) continue;
          const int64_t kj = ((k0 + j) * in.heads + h) * in.head_dim;
          double product = 0, gradient = 0;
          for (int64_t e = 0; e < in.head_dim; ++e) {
            product += in.q[qi + e] * in.k[kj + e];
            gradient += in.dout[qi + e] * in.v[kj + e];
          }
          double s = in.alpha * product;
          int64_t bucket = 0;
          if (!in.position_bias.empty()) s += in.position_bias[center + j - i];
          if (!in.time_bias.empty()) {
            const int64_t last =
                in.request_times.empty() ? in.timestamps[k0 + keys - 1] : in.request_times[b];
            const int64_t next = i + 1 < keys ? in.timestamps[k0 + i + 1] : last;
            bucket = hstu_time_bucket(next - in.timestamps[k0 + j], buckets);
            s += in.time_bias[bucket];
          }
          const double sigma = 1 / (1 + std::exp(-s));
          const double a = s * sigma / in.scaling_seqlen;
          const double ds = gradient * sigma * (1 + s * (1 - sigma)) / in.scaling_seqlen;
          for (int64_t e = 0; e < in.head_dim; ++e) {
            r.out[qi + e] += a * in.v[kj + e];
            r.dv[kj + e] += a * in.dout[qi + e];
            r.dq[qi + e] += in.alpha * ds * in.k[kj + e];
            r.dk[kj + e] += in.alpha * ds * in.q[qi + e];
          }
          if (!in.position_bias.empty()) {
            r.d_position_bias[center + j - i] += ds;
            r.position_terms[center + j - i] += std::abs(ds);
          }
          if (!in.time_bias.empty()) {
            r.d_time_bias[bucket] += ds;
            r.time_terms[bucket] += std::abs(ds);
          }
        }
      }
    }
  }
  return r;
}

}  // namespace seqfuse::oracle
