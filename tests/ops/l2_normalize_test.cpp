#include "ops/kernels/norm/l2_normalize.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/l2_normalize.h"

namespace seqfuse::l2_normalize_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-6;

TEST(L2Normalize, ForwardAndGradientKeepTheOracleRule) {
  at::manual_seed(1);
  for (const auto& [rows, dim] : {std::pair{0, 5}, {1, 50}, {37, 7}, {301, 50}, {3, 1025}}) {
    const Tensor x = random({rows, dim}, at::kFloat) * 2, dy = random({rows, dim}, at::kFloat);
    const auto run = [&](at::ScalarType type, auto&& f) {
      const Tensor leaf = x.to(type).detach().clone().requires_grad_();
      const Tensor y = f(leaf);
      y.backward(dy.to(type));
      return std::pair{y, leaf.grad()};
    };
    const auto plain_maths = [](const Tensor& in) {
      return in / in.norm(2, 1, true).clamp_min(kEps);
    };
    const auto ours = run(at::kFloat, [](const Tensor& in) { return ops::l2_normalize(in, kEps); });
    const auto plain = run(at::kFloat, plain_maths), reference = run(at::kDouble, plain_maths);
    expect_oracle_rule(ours.first, plain.first, oracle::l2_normalize(x.to(at::kDouble), kEps), 2,
                       "y");
    expect_oracle_rule(ours.second, plain.second, reference.second, 5, "dx");
  }
}

TEST(L2Normalize, OneColumnBecomesItsSign) {
  const Tensor x = at::tensor({-3.F, .7F}).view({2, 1}).requires_grad_();
  const Tensor y = ops::l2_normalize(x, kEps);
  y.backward(at::full({2, 1}, 2.F));
  EXPECT_TRUE(at::allclose(y, at::tensor({-1.F, 1.F}).view({2, 1})));
  EXPECT_LE(max_abs(x.grad()), 1e-6);  // 0 up to rounding
}

TEST(L2Normalize, RowsShorterThanEpsAreDividedByIt) {
  const Tensor x = at::full({1, 4}, 1e-9, at::kDouble).requires_grad_();
  const Tensor y = ops::l2_normalize(x, kEps);
  y.sum().backward();
  EXPECT_TRUE(at::allclose(y, at::full({1, 4}, 1e-3, at::kDouble)));
  EXPECT_TRUE(at::allclose(x.grad(), at::full({1, 4}, 1 / kEps, at::kDouble)));
  EXPECT_EQ(max_abs(ops::l2_normalize(at::zeros({2, 3}), kEps)), 0);
}

TEST(L2Normalize, GradientMatchesCentralDifferences) {
  at::manual_seed(2);
  expect_gradients([](auto& in) { return ops::l2_normalize(in[0], kEps); }, {random({7, 9})});
  expect_gradients([](auto& in) { return ops::l2_normalize(in[0], 100); }, {random({3, 5})});
}

TEST(L2Normalize, StridedInputsGiveTheSameBits) {
  at::manual_seed(3);
  const Tensor x = random({41, 19});
  EXPECT_TRUE(at::equal(ops::l2_normalize(with_row_gaps(x), kEps), ops::l2_normalize(x, kEps)));
  EXPECT_TRUE(at::equal(ops::l2_normalize(transposed(x), kEps), ops::l2_normalize(x, kEps)));
}

TEST(L2Normalize, WritesItsOutputsAndNothingElse) {
  at::manual_seed(4);
  const Tensor x = random({9, 21}), dy = random({9, 21});
  const GuardedMatrix y(9, 21, x.options()), norm(1, 9, x.options()), dx(9, 21, x.options());
  ops::l2_normalize_forward_cpu({.x = x.const_data_ptr(),
                                 .y = y.data(),
                                 .norm = norm.data(),
                                 .rows = 9,
                                 .dim = 21,
                                 .x_stride = 21,
                                 .y_stride = y.stride(),
                                 .eps = kEps},
                                DType::f64);
  y.check("y");
  norm.check("norm");
  ops::l2_normalize_backward_cpu({.x = x.const_data_ptr(),
                                  .norm = norm.data(),
                                  .dy = dy.const_data_ptr(),
                                  .dx = dx.data(),
                                  .rows = 9,
                                  .dim = 21,
                                  .x_stride = 21,
                                  .dy_stride = 21,
                                  .dx_stride = dx.stride(),
                                  .eps = kEps},
                                 DType::f64);
  dx.check("dx");
}

TEST(L2Normalize, SameBitsForAnyNumberOfThreads) {
  const Tensor x = random({3001, 50}, at::kFloat);
  expect_same_for_any_threads([&] {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor y = ops::l2_normalize(leaf, kEps);
    return std::vector<Tensor>{y, torch::autograd::grad({y}, {leaf}, {x})[0]};
  });
}

TEST(L2Normalize, WrongArgumentsAreExplained) {
  expect_error([] { ops::l2_normalize(random({4}), kEps); },
               "l2_normalize: x is [4] (1-D); expected [T, D]");
  expect_error([] { ops::l2_normalize(random({4, 4}), 0); },
               "l2_normalize: eps is 0; expected a positive number");
  expect_error([] { ops::l2_normalize(at::zeros({4, 4}, at::kInt), 1); },
               "l2_normalize: x is Int; expected Float or Double on the CPU");
}

}  // namespace
}  // namespace seqfuse::l2_normalize_test
