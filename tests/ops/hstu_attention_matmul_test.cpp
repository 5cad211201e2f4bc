// HSTU attention by matrix products: on the CPU without biases, on a GPU with everything.
#include <vector>

#include "ops/torch/hstu_attention_inputs.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_problem.h"

namespace seqfuse {
namespace {

using at::Tensor;
using namespace seqfuse::test;

const std::vector<int64_t> kLengths{0, 1, 7, 31, 64, 65, 127, 200, 0};

std::vector<Setting> settings() {
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

std::vector<Tensor> reference_of(const Problem& problem) {
  const oracle::HstuAttentionResult r = oracle::hstu_attention(problem.oracle_input());
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

// Differentiable in q, k and v.
class ByMatmul : public torch::autograd::Function<ByMatmul> {
 public:
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor&, const Tensor&,
                        const Tensor&, const ops::HstuAttentionInputs& in) {
    inputs = in;
    return ops::attention_by_matmul(in);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext*,
                                      const std::vector<Tensor>& gradients) {
    const auto d = ops::attention_gradients_by_matmul(inputs, gradients[0]);
    return {d.q, d.k, d.v, Tensor()};
  }
  static inline ops::HstuAttentionInputs inputs;
};

TEST(HstuAttentionByMatmul, MatchesTheOracleUnderEveryMaskInFloat64) {
  uint64_t seed = 1;
  for (const Setting& setting : settings()) {
    const Problem problem(kLengths, setting, seed++);
    const auto attention = [&](const Tensor& q, const Tensor& k, const Tensor& v,
                               const HstuAttentionOptions& options) {
      return ByMatmul::apply(
          q, k, v,
          ops::HstuAttentionInputs{.q = q.detach(),
                                   .k = k.detach(),
                                   .v = v.detach(),
                                   .q_offsets = problem.q_offsets,
                                   .k_offsets = problem.k_offsets,
                                   .num_contexts = *options.num_contexts,
                                   .num_targets = *options.num_targets,
                                   .alpha = options.alpha,
                                   .scaling_seqlen = options.scaling_seqlen,
                                   .causal = options.causal,
                                   .target_group_size = options.target_group_size,
                                   .max_attn_len = options.max_attn_len,
                                   .min_full_attn_seq_len = options.min_full_attn_seq_len,
                                   .max_seqlen = 203});
    };
    const auto actual = results(problem, at::kDouble, attention), expected = reference_of(problem);
    for (size_t r = 0; r < actual.size(); ++r) {
      EXPECT_LE(max_abs(actual[r] - expected[r]), 1e-12 * (1 + max_abs(expected[r])))
          << describe(setting) << ": " << kResultNames[r];
    }
  }
}

// The arguments on the GPU; results come back as they are there.
std::vector<Tensor> on_gpu(const Problem& problem, at::ScalarType type) {
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
  return ours(there, type);
}

class HstuAttentionCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuAttentionCudaTest, cuda_types());

TEST_P(HstuAttentionCudaTest, MatchesTheOracleUnderEveryMaskWithAndWithoutBiases) {
  uint64_t seed = 1;
  for (Setting setting : settings()) {
    for (const bool bias : {false, true}) {
      setting.bias = bias;
      const Problem problem(kLengths, setting, seed++);
      const auto actual = on_gpu(problem, GetParam()), framework = plain(problem, GetParam()),
                 expected = reference_of(problem);
      for (size_t r = 0; r < actual.size(); ++r) {
        expect_oracle_rule(actual[r], framework[r], expected[r], r == 0 ? 2 : 5,
                           describe(setting) + ": " + kResultNames[r]);
      }
    }
  }
}

TEST_P(HstuAttentionCudaTest, BitEqualFromRunToRun) {
  const Deterministic mode;
  const Problem problem(kLengths, {.head_dim = 50, .bias = true});
  const auto first = on_gpu(problem, GetParam());
  for (int run = 0; run < 5; ++run) expect_equal(on_gpu(problem, GetParam()), first, "run");
}

TEST_P(HstuAttentionCudaTest, NoSequences) {
  const Problem problem({0, 0}, {});
  for (const Tensor& result : on_gpu(problem, GetParam())) EXPECT_EQ(result.numel(), 0);
}

}  // namespace
}  // namespace seqfuse
