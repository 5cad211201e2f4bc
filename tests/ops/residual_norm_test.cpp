#include "ops/kernels/norm/residual_norm.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/residual_norm.h"

namespace seqfuse::residual_norm_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows, dim;
};

class ResidualNormTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, ResidualNormTest,
                         testing::Values(Case{0, 8}, Case{1, 1}, Case{1, 50}, Case{3, 7},
                                         Case{129, 50}, Case{5, 1023}));

TEST_P(ResidualNormTest, MatchesTheFormulas) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(1);
  const Tensor x = random({rows, dim}) * 3 + 1, a = random({rows, dim}), b = random({rows, dim});
  const Tensor w = random({dim}), c = random({dim}), w2 = random({dim}), c2 = random({dim});
  const auto expect_near = [](const Tensor& actual, const Tensor& expected, const char* what) {
    EXPECT_LE(max_abs(actual - expected), 1e-11 * (1 + max_abs(expected))) << what;
  };
  expect_near(ops::layer_norm_residual(x, a, w, c, kEps),
              oracle::layer_norm_residual(x, a, w, c, kEps), "layer norm + residual");
  for (const std::vector<Tensor>& terms : {std::vector{x}, {x, a}, {x, a, b}}) {
    const Tensor s = oracle::sum_of(terms);
    const auto [sum, y] = ops::add_layer_norm(terms, w, c, kEps);
    EXPECT_TRUE(at::equal(sum, s));
    expect_near(y, oracle::layer_norm(s, w, c, kEps), "add + layer norm");
    const auto [dual_sum, y1, y2] = ops::add_dual_layer_norm(terms, w, c, w2, c2, kEps);
    EXPECT_TRUE(at::equal(dual_sum, s));
    EXPECT_TRUE(at::equal(y1, y));
    expect_near(y2, oracle::layer_norm(s, w2, c2, kEps), "second norm");
  }
  const auto [y1, y2] = ops::dual_layer_norm(x, w, {}, {}, c2, kEps);
  expect_near(y1, oracle::layer_norm(x, w, {}, kEps), "without bias");
  expect_near(y2, oracle::layer_norm(x, {}, c2, kEps), "without weight");
}

TEST_P(ResidualNormTest, KeepsTheOracleRuleInFloat32) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(2);
  const Tensor x = random({rows, dim}, at::kFloat) * 3 + 1, a = random({rows, dim}, at::kFloat);
  const Tensor w = random({dim}, at::kFloat), c = random({dim}, at::kFloat);
  const auto f64 = [](const Tensor& t) { return t.to(at::kDouble); };
  expect_oracle_rule(ops::layer_norm_residual(x, a, w, c, kEps),
                     at::layer_norm(x, {dim}, w, c, kEps) + a,
                     oracle::layer_norm_residual(f64(x), f64(a), f64(w), f64(c), kEps), 2, "y");
  const auto [sum, y] = ops::add_layer_norm({x, a}, w, c, kEps);
  EXPECT_TRUE(at::equal(sum, x + a));
  expect_oracle_rule(y, at::layer_norm(x + a, {dim}, w, c, kEps),
                     oracle::layer_norm(f64(x + a), f64(w), f64(c), kEps), 2, "norm of the sum");
}

TEST_P(ResidualNormTest, StridedInputsGiveTheSameBits) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(3);
  const Tensor x = random({rows, dim}), a = random({rows, dim}), w = random({dim});
  const auto expected = ops::add_layer_norm({x, a}, w, {}, kEps);
  for (const auto& other : {with_row_gaps, transposed}) {
    const auto actual = ops::add_layer_norm({other(x), other(a)}, w, {}, kEps);
    EXPECT_TRUE(at::equal(std::get<0>(actual), std::get<0>(expected)));
    EXPECT_TRUE(at::equal(std::get<1>(actual), std::get<1>(expected)));
  }
  EXPECT_TRUE(at::equal(ops::layer_norm_residual(x, transposed(a), w, {}, kEps),
                        ops::layer_norm_residual(x, a, w, {}, kEps)));
}

TEST(ResidualNorm, GradientsMatchCentralDifferences) {
  at::manual_seed(4);
  const int64_t rows = 3, dim = 5;
  const auto matrix = [&] { return random({rows, dim}); };
  const auto vector = [&] { return random({dim}); };
  expect_gradients(
      [](auto& in) { return ops::layer_norm_residual(in[0], in[1], in[2], in[3], kEps); },
      {matrix(), matrix(), vector(), vector()});
  const auto joined = [](const auto& outputs) {
    return std::apply([](const auto&... t) { return at::cat({t...}); }, outputs);
  };
  expect_gradients(
      [&](auto& in) { return joined(ops::add_layer_norm({in[0], in[1]}, in[2], in[3], kEps)); },
      {matrix(), matrix(), vector(), vector()});
  expect_gradients(
      [&](auto& in) {
        return joined(ops::dual_layer_norm(in[0], in[1], in[2], in[3], in[4], kEps));
      },
      {matrix(), vector(), vector(), vector(), vector()});
  expect_gradients(
      [&](auto& in) {
        return joined(
            ops::add_dual_layer_norm({in[0], in[1], in[2]}, in[3], {}, in[4], in[5], kEps));
      },
      {matrix(), matrix(), matrix(), vector(), vector(), vector()});
  // Only one output has a gradient.
  for (const int output : {0, 1, 2}) {
    expect_gradients(
        [&](auto& in) {
          const auto [sum, y, y2] =
              ops::add_dual_layer_norm({in[0], in[1]}, {}, in[2], {}, {}, kEps);
          return (output == 0 ? sum : output == 1 ? y : y2) + 0 * in[2];
        },
        {matrix(), matrix(), vector()});
  }
}

TEST(ResidualNorm, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(5);
  const Tensor x = random({3001, 50}, at::kFloat), a = random({3001, 50}, at::kFloat);
  const Tensor w = random({50}, at::kFloat);
  expect_same_for_any_threads([&] {
    const auto [sum, y, y2] = ops::add_dual_layer_norm({x, a}, w, {}, {}, w, kEps);
    return std::vector<Tensor>{sum, y, y2};
  });
}

TEST(ResidualNorm, WrongArgumentsAreExplained) {
  const Tensor x = random({3, 4});
  expect_error([&] { ops::layer_norm_residual(x, random({3, 5}), {}, {}, kEps); },
               "layer_norm_residual: residual is [3, 5]; expected [3, 4] (like x)");
  expect_error([&] { ops::layer_norm_residual(x, random({3, 4}, at::kFloat), {}, {}, kEps); },
               "layer_norm_residual: residual is Float on cpu; expected Double on cpu, like x");
  expect_error([&] { ops::add_layer_norm({x, random({2, 4})}, {}, {}, kEps); },
               "add_layer_norm: the second term is [2, 4]; expected [3, 4] (like x)");
  expect_error([&] { ops::add_layer_norm({}, {}, {}, kEps); },
               "add_layer_norm: terms has 0 tensors; expected 1 to 3");
  expect_error([&] { ops::dual_layer_norm(x, {}, {}, random({5}), {}, kEps); },
               "dual_layer_norm: weight is [5]; expected [4] (the columns of its input)");
  expect_error([&] { ops::dual_layer_norm(random({4}), {}, {}, {}, {}, kEps); },
               "dual_layer_norm: x is [4] (1-D); expected [T, D] (2-D)");
  expect_error([&] { ops::add_dual_layer_norm({x}, {}, {}, {}, {}, -1); },
               "add_dual_layer_norm: eps is -1; expected 0 or more");
}

}  // namespace
}  // namespace seqfuse::residual_norm_test
