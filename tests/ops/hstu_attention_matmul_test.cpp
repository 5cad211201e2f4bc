// HSTU attention by matrix products, on the CPU without biases.
#include <vector>

#include "ops/torch/attention/hstu_attention_inputs.h"
#include "tests/ops/hstu_attention_problem.h"

namespace seqfuse::hstu_attention_matmul_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

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
                                   .scaling_seqlen = options.scaling_seqlen.expect_int(),
                                   .mask = mask_of(options),
                                   .max_seqlen = 203});
    };
    const auto actual = results(problem, at::kDouble, attention), expected = reference_of(problem);
    for (size_t r = 0; r < actual.size(); ++r) {
      EXPECT_LE(max_abs(actual[r] - expected[r]), 1e-12 * (1 + max_abs(expected[r])))
          << describe(setting) << ": " << kResultNames[r];
    }
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_matmul_test
