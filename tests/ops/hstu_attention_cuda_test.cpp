// HSTU attention on a GPU: kernels in 16 bits, matrix products in float32.
#include <string>
#include <vector>

#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_on_gpu.h"

namespace seqfuse::hstu_attention_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

// Runs on the GPU and returns the results there.
std::vector<Tensor> on_gpu(const Problem& problem, at::ScalarType type) {
  return ours(copied(problem), type);
}

void expect_like_the_oracle(const Problem& problem, at::ScalarType type, const std::string& what) {
  const auto actual = on_gpu(problem, type), framework = plain(problem, type),
             expected = reference_of(problem);
  for (size_t r = 0; r < actual.size(); ++r)
    expect_oracle_rule(actual[r], framework[r], expected[r], r == 0 ? 2 : 5,
                       what + ": " + kResultNames[r]);
}

class HstuAttentionCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuAttentionCudaTest, cuda_types());

TEST_P(HstuAttentionCudaTest, MatchesTheOracleUnderEveryMaskWithAndWithoutBiases) {
  uint64_t seed = 1;
  for (Setting setting : settings()) {
    for (const bool bias : {false, true}) {
      setting.bias = bias;
      expect_like_the_oracle(Problem(kLengths, setting, seed++), GetParam(), describe(setting));
    }
  }
}

// As many buckets as time differences reach, and more; sums by bucket then take most memory.
TEST_P(HstuAttentionCudaTest, ManyBucketsOfTime) {
  Problem problem({300, 0, 31}, {.head_dim = 32, .bias = true});
  problem.options.time_bias = random({200}, at::kFloat).to(at::kDouble);
  expect_like_the_oracle(problem, GetParam(), "200 buckets");
}

TEST_P(HstuAttentionCudaTest, BitEqualFromRunToRun) {
  const Deterministic mode;
  const Problem problem(kLengths, {.head_dim = 50, .bias = true});
  const auto first = on_gpu(problem, GetParam());
  for (int run = 1; run < 10; ++run) expect_equal(on_gpu(problem, GetParam()), first, "run");
}

TEST_P(HstuAttentionCudaTest, Int32OffsetsGiveTheSameBits) {
  const Deterministic mode;
  for (const bool fewer_queries : {false, true}) {
    Problem problem = copied(Problem(kLengths, {.head_dim = 32,
                                                .contexts = 3,
                                                .targets = 20,
                                                .bias = true,
                                                .fewer_queries = fewer_queries}));
    const auto expected = ours(problem, GetParam());
    problem.k_offsets = problem.k_offsets.to(at::kInt);
    expect_equal(ours(problem, GetParam()), expected, "one of them int32");
    problem.q_offsets = problem.q_offsets.to(at::kInt);
    expect_equal(ours(problem, GetParam()), expected, "both int32");
  }
}

TEST_P(HstuAttentionCudaTest, GradientsThatAreAskedForAlone) {
  const Deterministic mode;
  const Problem problem = copied(Problem({40, 0, 7}, {.head_dim = 32, .targets = 3, .bias = true}));
  HstuAttentionOptions options = problem.options;
  std::vector<Tensor> leaves{problem.q, problem.k, problem.v, *options.position_bias,
                             *options.time_bias};
  for (Tensor& leaf : leaves) leaf = leaf.to(GetParam()).detach().requires_grad_();
  options.position_bias = leaves[3];
  options.time_bias = leaves[4];
  const Tensor out = ops::hstu_attention(leaves[0], leaves[1], leaves[2], problem.q_offsets,
                                         problem.k_offsets, options);
  expect_same_alone(out, leaves, problem.dout.to(GetParam()), "attention");
}

TEST_P(HstuAttentionCudaTest, NoSequences) {
  for (const bool bias : {false, true})
    expect_nothing(on_gpu(Problem({0, 0}, {.bias = bias}), GetParam()));
}

}  // namespace
}  // namespace seqfuse::hstu_attention_cuda_test
