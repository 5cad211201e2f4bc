// Random problems for HSTU attention, with results of the operator, of plain PyTorch and of the
// oracle.
#pragma once

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/torch/ops.h"
#include "tests/ops/hstu_attention_dense.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/hstu_attention.h"

namespace seqfuse::test {

using ops::HstuAttentionOptions;

inline Tensor integers(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

inline std::vector<double> doubles(const Tensor& tensor) {
  const Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

inline std::vector<int64_t> values_of(const Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

// The parameters that a test varies.
struct Setting {
  int64_t heads = 2, head_dim = 5;
  int64_t contexts = 0, targets = 0;  // at most, in each sequence
  int64_t group_size = 1, window = 0, full_rows = 0;
  bool causal = true, bias = false, fewer_queries = false;
  bool drawn = true;  // contexts and targets: random up to these numbers; otherwise as many as fit
};

inline std::string describe(const Setting& s) {
  return fmt::format(
      "H={} d={} contexts={} targets={} g={} w={} F={} causal={} bias={} delta_q={} drawn={}",
      s.heads, s.head_dim, s.contexts, s.targets, s.group_size, s.window, s.full_rows, s.causal,
      s.bias, s.fewer_queries, s.drawn);
}

// Arguments in float64 (values exact in float32); everything that the setting does not fix is
// random.
struct Problem {
  Tensor q, k, v, dout, q_offsets, k_offsets;
  HstuAttentionOptions options;
  std::vector<oracle::HstuAttentionMask> masks;

  Problem(const std::vector<int64_t>& lengths, const Setting& s, uint64_t seed = 1) {
    Random random_number(seed);
    const auto up_to = [&](int64_t n) {
      return static_cast<int64_t>(random_number.below(static_cast<uint64_t>(n) + 1));
    };
    std::vector<int64_t> queries = lengths, contexts, targets, times, requests;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const int64_t n = lengths[b];
      if (s.fewer_queries) queries[b] = up_to(n);
      const auto count = [&](int64_t most) { return s.drawn ? up_to(most) : most; };
      contexts.push_back(count(std::min(s.contexts, n)));
      targets.push_back(count(std::min(s.targets, n - contexts.back())));
      masks.push_back(
          {n, contexts.back(), targets.back(), s.group_size, s.window, s.full_rows, s.causal});
      int64_t now = 1'000'000'000 + up_to(1000);
      for (int64_t i = 0; i < n; ++i) {
        times.push_back(now);
        now += up_to(9) == 0 ? up_to(100'000'000) - 1000 : up_to(40);  // sometimes backwards
      }
      requests.push_back(now);
    }
    at::manual_seed(seed);
    q_offsets = offsets_of(queries);
    k_offsets = offsets_of(lengths);
    const auto rows = [&](const Tensor& offsets) {
      return random({offsets[-1].item<int64_t>(), s.heads, s.head_dim}, at::kFloat).to(at::kDouble);
    };
    q = rows(q_offsets);
    k = rows(k_offsets);
    v = rows(k_offsets);
    dout = rows(q_offsets);
    // Models with biases have small heads and no scale; keep scores as small for large heads.
    const double root = std::sqrt(static_cast<double>(s.head_dim));
    options = {.alpha = s.bias ? std::min(1.0, 8 / root) : 1 / root,
               .scaling_seqlen = 37,
               .causal = s.causal,
               .target_group_size = s.group_size,
               .max_attn_len = s.window,
               .min_full_attn_seq_len = s.full_rows,
               .num_contexts = integers(contexts),
               .num_targets = integers(targets)};
    if (s.bias) {
      int64_t longest = 0;
      for (const int64_t length : lengths) longest = std::max(longest, length);
      options.position_bias = random({2 * (longest + 3) - 1}, at::kFloat).to(at::kDouble);
      options.time_bias = random({50}, at::kFloat).to(at::kDouble);
      options.timestamps = integers(times);
      options.request_times = integers(requests);
    }
  }

  oracle::HstuAttentionInput oracle_input() const {
    oracle::HstuAttentionInput in{
        .heads = q.size(1),
        .head_dim = q.size(2),
        .q = doubles(q),
        .k = doubles(k),
        .v = doubles(v),
        .dout = doubles(dout),
        .q_offsets = values_of(q_offsets),
        .k_offsets = values_of(k_offsets),
        .masks = masks,
        .alpha = options.alpha,
        .scaling_seqlen = static_cast<double>(options.scaling_seqlen.expect_int())};
    if (options.position_bias) {
      in.position_bias = doubles(*options.position_bias);
      in.time_bias = doubles(*options.time_bias);
      in.timestamps = values_of(*options.timestamps);
      in.request_times = values_of(*options.request_times);
    }
    return in;
  }
};

inline constexpr const char* kResultNames[] = {"out",        "dq", "dk", "dv", "d_position_bias",
                                               "d_time_bias"};

// out, dq, dk, dv and the gradients of the biases, from attention(q, k, v, options).
template <class Attention>
std::vector<Tensor> results(const Problem& problem, at::ScalarType type, Attention&& attention) {
  const auto leaf = [&](const Tensor& t) { return t.to(type).detach().clone().requires_grad_(); };
  std::vector<Tensor> leaves{leaf(problem.q), leaf(problem.k), leaf(problem.v)};
  HstuAttentionOptions options = problem.options;
  if (options.position_bias) {
    leaves.push_back(leaf(*options.position_bias));
    leaves.push_back(leaf(*options.time_bias));
    options.position_bias = leaves[3];
    options.time_bias = leaves[4];
  }
  const Tensor out = attention(leaves[0], leaves[1], leaves[2], options);
  std::vector<Tensor> all{out.detach()};
  for (Tensor& gradient : torch::autograd::grad({out}, leaves, {problem.dout.to(type)})) {
    all.push_back(gradient);
  }
  return all;
}

// Requesting one gradient at a time gives the same bits as requesting all.
inline void expect_same_alone(const Tensor& out, const std::vector<Tensor>& leaves,
                              const Tensor& dout, const std::string& what) {
  const auto all = torch::autograd::grad({out}, leaves, {dout}, /*retain_graph=*/true);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto alone = torch::autograd::grad({out}, {leaves[i]}, {dout}, /*retain_graph=*/true);
    EXPECT_TRUE(at::equal(alone[0], all[i])) << what << ", leaf " << i;
  }
}

inline std::vector<Tensor> ours(const Problem& problem, at::ScalarType type) {
  return results(
      problem, type,
      [&](const Tensor& q, const Tensor& k, const Tensor& v, const HstuAttentionOptions& options) {
        return ops::hstu_attention(q, k, v, problem.q_offsets, problem.k_offsets, options);
      });
}

// Batches without tokens give results without rows and zero gradients of biases.
inline void expect_nothing(const std::vector<Tensor>& results) {
  for (size_t r = 0; r < results.size(); ++r) {
    EXPECT_EQ(results[r].numel() > 0, r > 3) << kResultNames[r];
    EXPECT_EQ(results[r].count_nonzero().item<int64_t>(), 0) << kResultNames[r];
  }
}

// Looks up a bias. Does not use index(): millions of positions share a bucket, and a GPU would sum
// their gradient one by one.
inline Tensor bias_at(const Tensor& bias, const Tensor& places) {
  const Tensor wide = bias.scalar_type() == at::kDouble ? bias : bias.to(at::kFloat);
  return wide.gather(0, places.flatten()).view(places.sizes()).to(bias.scalar_type());
}

// The same computation in plain PyTorch, sequence by sequence with whole score matrices, on the
// problem's device. In float64 it replaces the oracle where loops would take too long.
inline Tensor plain_attention(const Problem& problem, const Tensor& q, const Tensor& k,
                              const Tensor& v, const HstuAttentionOptions& options) {
  // Keeps every argument in the graph.
  Tensor out = q * 0 + (k.sum() + v.sum()) * 0;
  for (size_t b = 0; b < problem.masks.size(); ++b) {
    const int64_t q0 = problem.q_offsets[b].item<int64_t>();
    const int64_t q1 = problem.q_offsets[b + 1].item<int64_t>();
    const int64_t k0 = problem.k_offsets[b].item<int64_t>(), keys = problem.masks[b].keys;
    if (q1 == q0) continue;
    const auto heads_first = [](const Tensor& t) { return t.transpose(0, 1); };
    Tensor scores =
        options.alpha * heads_first(q.slice(0, q0, q1))
                            .matmul(heads_first(k.slice(0, k0, k0 + keys)).transpose(1, 2));
    if (options.position_bias) {
      const Tensor places =
          dense_distances(keys, q1 - q0, q.device()) + options.position_bias->numel() / 2;
      const auto sequence = static_cast<int64_t>(b);
      const Tensor buckets =
          dense_time_buckets(options.timestamps->slice(0, k0, k0 + keys),
                             options.request_times->slice(0, sequence, sequence + 1), q1 - q0,
                             options.time_bias->numel());
      scores =
          scores + bias_at(*options.position_bias, places) + bias_at(*options.time_bias, buckets);
    }
    const Tensor weights = at::silu(scores) / options.scaling_seqlen.expect_int() *
                           dense_mask(problem.masks[b], q1 - q0, q.device()).to(q.scalar_type());
    const Tensor attended = heads_first(weights.matmul(heads_first(v.slice(0, k0, k0 + keys))));
    out = at::slice_scatter(out, attended, 0, q0, q1);
  }
  if (options.position_bias) {
    out = out + (options.position_bias->sum() + options.time_bias->sum()) * 0;
  }
  return out;
}

inline std::vector<Tensor> plain(const Problem& problem, at::ScalarType type) {
  return results(
      problem, type,
      [&](const Tensor& q, const Tensor& k, const Tensor& v, const HstuAttentionOptions& options) {
        return plain_attention(problem, q, k, v, options);
      });
}

// In the order of results().
inline std::vector<Tensor> tensors_of(const Problem& problem,
                                      const oracle::HstuAttentionResult& r) {
  std::vector<Tensor> all;
  const auto add = [&](const std::vector<double>& values, const Tensor& like) {
    all.push_back(at::tensor(values, at::kDouble).view(like.sizes()));
  };
  add(r.out, problem.q);
  add(r.dq, problem.q);
  add(r.dk, problem.k);
  add(r.dv, problem.v);
  if (problem.options.position_bias) {
    add(r.d_position_bias, *problem.options.position_bias);
    add(r.d_time_bias, *problem.options.time_bias);
  }
  return all;
}

// The same by the oracle.
inline std::vector<Tensor> reference_of(const Problem& problem) {
  return tensors_of(problem, oracle::hstu_attention(problem.oracle_input()));
}

inline double largest(const std::vector<double>& terms) {
  return terms.empty() ? 0 : *std::max_element(terms.begin(), terms.end());
}

inline void expect_matches_oracle(const Problem& problem, const std::string& what) {
  const oracle::HstuAttentionResult result = oracle::hstu_attention(problem.oracle_input());
  const auto actual = ours(problem, at::kFloat), exact = ours(problem, at::kDouble),
             framework = plain(problem, at::kFloat), expected = tensors_of(problem, result);
  for (size_t r = 0; r < actual.size(); ++r) {
    const Tensor& reference = expected[r];
    const double terms = r == 4   ? largest(result.position_terms)
                         : r == 5 ? largest(result.time_terms)
                                  : 0;
    expect_oracle_rule(actual[r], framework[r], reference, r == 0 ? 2 : 5,
                       what + ": " + kResultNames[r], terms);
    EXPECT_LE(max_abs(exact[r] - reference), 1e-12 * (1 + max_abs(reference)))
        << what << ": float64 " << kResultNames[r];
  }
}

// Lengths and settings that cover every mask.
inline const std::vector<int64_t> kLengths{0, 1, 7, 31, 64, 65, 127, 200, 0};

inline std::vector<Setting> settings() {
  return {
      {},
      {.heads = 1, .head_dim = 64, .contexts = 5},
      {.head_dim = 33, .contexts = 3, .targets = 40, .group_size = 3},
      {.head_dim = 16, .targets = 70, .window = 11},
      {.head_dim = 17,
       .contexts = 40,
       .targets = 9,
       .group_size = 2,
       .window = 40,
       .full_rows = 20},
      {.contexts = 4, .targets = 30, .window = 5, .fewer_queries = true},
      {.head_dim = 8, .causal = false},
      {.contexts = 6,
       .targets = 20,
       .group_size = 4,
       .window = 13,
       .full_rows = 2,
       .causal = false},
      {.heads = 1, .head_dim = 32, .contexts = 100, .targets = 100, .group_size = 11},
  };
}

}  // namespace seqfuse::test
