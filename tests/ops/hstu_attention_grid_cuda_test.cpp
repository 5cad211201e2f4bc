// HSTU attention's kernels over a grid of head_dim, masks, contexts, targets, groups and biases.
// Each case is a batch of sequences from empty to thousands of keys.
#include <array>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "tests/ops/cuda_test.h"
#include "tests/ops/hstu_attention_on_gpu.h"

namespace seqfuse::hstu_attention_grid_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

const std::vector<int64_t> kGridLengths{0, 1, 7, 31, 64, 65, 127, 200, 333, 1111, 4096};
constexpr int64_t kHeadDims[] = {32, 50, 64, 128, 256};

// The cases of one dtype: every head_dim with every mask; the other settings rotate, such that any
// two values meet in a case of some dtype.
std::vector<Setting> grid(at::ScalarType type) {
  constexpr int64_t kContexts[] = {0, 1, 99}, kTargets[] = {0, 1, 20, 222}, kGroups[] = {1, 11};
  const Setting masks[] = {{},
                           {.causal = false},
                           {.window = 100},
                           {.window = 100, .full_rows = 30},
                           {.window = 70, .full_rows = 5, .causal = false},
                           {.fewer_queries = true},
                           {.window = 50, .full_rows = 40, .fewer_queries = true}};
  std::vector<Setting> cases;
  int64_t n = type == at::kHalf ? std::size(kHeadDims) * std::size(masks) : 0;
  for (const int64_t head_dim : kHeadDims) {
    for (Setting setting : masks) {
      const int64_t place = 5 * n;  // with steps of 1 instead of 5, some values would never meet
      setting.head_dim = head_dim;
      setting.contexts = kContexts[place % 3];
      setting.targets = kTargets[place / 3 % 4];
      setting.group_size = kGroups[place / 12 % 2];
      setting.bias = n % 2 == 1;
      setting.drawn = false;
      cases.push_back(setting);
      ++n;
    }
  }
  return cases;
}

TEST(HstuAttentionGrid, AnyTwoValuesMeet) {
  constexpr size_t kFactors = 7;
  std::vector<std::array<std::string, kFactors>> cases;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    for (const Setting& s : grid(type)) {
      Setting mask;
      mask.window = s.window;
      mask.full_rows = s.full_rows;
      mask.causal = s.causal;
      mask.fewer_queries = s.fewer_queries;
      cases.push_back({at::toString(type), fmt::format("head_dim {}", s.head_dim), describe(mask),
                       fmt::format("contexts {}", s.contexts), fmt::format("targets {}", s.targets),
                       fmt::format("groups of {}", s.group_size), fmt::format("bias {}", s.bias)});
    }
  }
  constexpr size_t kValues[kFactors] = {2, 5, 7, 3, 4, 2, 2};
  for (size_t a = 0; a < kFactors; ++a) {
    for (size_t b = 0; b < a; ++b) {
      std::set<std::pair<std::string, std::string>> met;
      for (const auto& values : cases) met.emplace(values[a], values[b]);
      EXPECT_EQ(met.size(), kValues[a] * kValues[b]) << cases[0][a] << ", " << cases[0][b];
    }
  }
}

class HstuAttentionGridCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, HstuAttentionGridCudaTest,
                         testing::Values(at::kHalf, at::kBFloat16));

TEST_P(HstuAttentionGridCudaTest, KeepsTheOracleRule) {
  uint64_t seed = 1;
  for (const Setting& setting : grid(GetParam())) {
    const std::string what = fmt::format("seed {}, {}", seed, describe(setting));
    const Problem problem = rounded(copied(Problem(kGridLengths, setting, seed)), GetParam());
    ++seed;
    const auto framework = plain(problem, GetParam()), expected = plain(problem, at::kDouble);
    expect_oracle_rule_by_sequence(problem, ours(problem, GetParam()), framework, expected, what);
    const Deterministic mode;
    expect_oracle_rule_by_sequence(problem, ours(problem, GetParam()), framework, expected,
                                   what + ", deterministic");
  }
}

// Keep biases and their gradients in float32; rounding them to 16 bits would hide differences.
std::vector<Tensor> with_float_biases(const Problem& problem, at::ScalarType type) {
  const HstuAttentionOptions& given = problem.options;
  return with_gradients(
      [&](const std::vector<Tensor>& leaves) {
        HstuAttentionOptions options = given;
        options.position_bias = leaves[3];
        options.time_bias = leaves[4];
        return ops::hstu_attention(leaves[0], leaves[1], leaves[2], problem.q_offsets,
                                   problem.k_offsets, options);
      },
      {problem.q.to(type), problem.k.to(type), problem.v.to(type),
       given.position_bias->to(at::kFloat), given.time_bias->to(at::kFloat)},
      problem.dout);
}

TEST_P(HstuAttentionGridCudaTest, TenRunsGiveTheSameBits) {
  constexpr size_t kQueryGradient = 1;
  for (const int64_t head_dim : kHeadDims) {
    const Problem problem = copied(Problem(
        kGridLengths,
        {.head_dim = head_dim, .contexts = 99, .targets = 222, .group_size = 11, .bias = true}));
    for (const bool deterministic : {true, false}) {
      const Deterministic mode(deterministic);
      const auto first = with_float_biases(problem, GetParam());
      for (int run = 1; run < 10; ++run) {
        const auto again = with_float_biases(problem, GetParam());
        for (size_t r = 0; r < first.size(); ++r) {
          // Otherwise summed by atomics.
          if (r == kQueryGradient && !deterministic) continue;
          EXPECT_TRUE(at::equal(again[r], first[r]))
              << kResultNames[r] << ", head_dim " << head_dim << ", run " << run;
        }
      }
    }
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_grid_cuda_test
