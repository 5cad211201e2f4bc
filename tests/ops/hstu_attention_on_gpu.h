// Problems for HSTU attention on a GPU, with plain PyTorch in float64 as the oracle.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/hstu_attention_problem.h"

namespace seqfuse::test {

// The arguments on the GPU.
inline Problem copied(const Problem& problem) {
  Problem there = problem;
  for (Tensor* tensor : {&there.q, &there.k, &there.v, &there.dout, &there.k_offsets}) {
    *tensor = tensor->cuda();
  }
  const bool same = at::equal(problem.q_offsets, problem.k_offsets);
  there.q_offsets = same ? there.k_offsets : problem.q_offsets.cuda();
  HstuAttentionOptions& options = there.options;
  for (ops::OptionalTensor* tensor :
       {&options.num_contexts, &options.num_targets, &options.position_bias, &options.time_bias,
        &options.timestamps, &options.request_times}) {
    if (*tensor) *tensor = (*tensor)->cuda();
  }
  options.max_seqlen = problem.k_offsets.diff().max().item<int64_t>() + 2;
  return there;
}

// Rounds values to a dtype, so that rounding of the arguments causes no errors.
inline Problem rounded(const Problem& problem, at::ScalarType type) {
  Problem result = problem;
  const auto round = [&](Tensor& t) { t = t.to(type).to(at::kDouble); };
  for (Tensor* t : {&result.q, &result.k, &result.v, &result.dout}) round(*t);
  for (ops::OptionalTensor* t : {&result.options.position_bias, &result.options.time_bias}) {
    if (*t) round(**t);
  }
  return result;
}

// The oracle rule for whole results, and for each sequence: an error in a sequence of small values
// must not hide behind the largest value. Skips sequences with few queries, where PyTorch's largest
// error is too random.
inline void expect_oracle_rule_by_sequence(const Problem& problem, const std::vector<Tensor>& ours,
                                           const std::vector<Tensor>& plain,
                                           const std::vector<Tensor>& reference,
                                           const std::string& what) {
  constexpr int64_t kFewQueries = 31;
  const auto q_offsets = values_of(problem.q_offsets.cpu()),
             k_offsets = values_of(problem.k_offsets.cpu());
  for (size_t r = 0; r < ours.size(); ++r) {
    const double factor = r == 0 ? 2 : 5;
    const std::string name = what + ": " + kResultNames[r];
    expect_oracle_rule(ours[r], plain[r], reference[r], factor, name);
    if (r > 3) continue;  // bias gradients are sums over all sequences
    const auto& offsets = r < 2 ? q_offsets : k_offsets;
    for (size_t b = 0; b + 1 < offsets.size(); ++b) {
      if (q_offsets[b + 1] - q_offsets[b] < kFewQueries) continue;
      const auto rows = [&](const Tensor& t) { return t.slice(0, offsets[b], offsets[b + 1]); };
      expect_oracle_rule(rows(ours[r]), rows(plain[r]), rows(reference[r]), factor,
                         fmt::format("{} of sequence {}", name, b));
    }
  }
}

}  // namespace seqfuse::test
