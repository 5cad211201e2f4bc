#include "ops/kernels/norm/layer_norm.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/layer_norm.h"

namespace seqfuse::layer_norm_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows, dim;
};

class LayerNormTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNormTest,
                         testing::Values(Case{0, 8}, Case{1, 1}, Case{1, 50}, Case{3, 7},
                                         Case{17, 64}, Case{129, 50}, Case{701, 33},
                                         Case{5, 1023}));

TEST_P(LayerNormTest, ForwardAndGradientsKeepTheOracleRule) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(1);
  const Tensor x = random({rows, dim}, at::kFloat) * 3 + 1, dy = random({rows, dim}, at::kFloat);
  const Tensor weight = random({dim}, at::kFloat), bias = random({dim}, at::kFloat);
  const auto run = [&](auto&& f) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : {x, weight, bias}) leaves.push_back(t.detach().clone().requires_grad_());
    const Tensor y = f(leaves[0], leaves[1], leaves[2]);
    y.backward(dy);
    return std::vector<Tensor>{y, leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const auto ours = run([](auto& in, auto& w, auto& b) { return ops::layer_norm(in, w, b, kEps); });
  const auto plain =
      run([](auto& in, auto& w, auto& b) { return at::layer_norm(in, {in.size(1)}, w, b, kEps); });
  const Tensor x64 = x.to(at::kDouble), weight64 = weight.to(at::kDouble);
  const Tensor y64 = oracle::layer_norm(x64, weight64, bias.to(at::kDouble), kEps);
  const auto d64 = oracle::layer_norm_backward(x64, weight64, dy.to(at::kDouble), kEps);
  expect_oracle_rule(ours[0], plain[0], y64, 2, "y");
  if (dim == 1) {
    EXPECT_LE(max_abs(ours[1]), 1e-5);  // 0 up to rounding: terms of about dy / sqrt(eps) cancel
  } else {
    expect_oracle_rule(ours[1], plain[1], d64.dx, 5, "dx");
  }
  expect_oracle_rule(ours[2], plain[2], d64.dweight, 5, "dweight");
  expect_oracle_rule(ours[3], plain[3], d64.dbias, 5, "dbias");
}

TEST_P(LayerNormTest, StridedInputsGiveTheSameBits) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(2);
  const Tensor x = random({rows, dim}), weight = random({dim}), bias = random({dim});
  const Tensor expected = ops::layer_norm(x, weight, bias, kEps);
  EXPECT_TRUE(at::equal(ops::layer_norm(with_row_gaps(x), weight, bias, kEps), expected));
  EXPECT_TRUE(at::equal(ops::layer_norm(transposed(x), weight, bias, kEps), expected));
  const Tensor strided_weight = at::stack({weight, bias}, 1).select(1, 0);
  EXPECT_TRUE(at::equal(ops::layer_norm(x, strided_weight, bias, kEps), expected));
}

TEST_P(LayerNormTest, WritesItsOutputsAndNothingElse) {
  const auto [rows, dim] = GetParam();
  at::manual_seed(3);
  const Tensor x = random({rows, dim}), dy = random({rows, dim});
  const GuardedMatrix y(rows, dim, x.options()), stats(2, rows, x.options()),
      dx(rows, dim, x.options()), weights(2, dim, x.options());
  ops::layer_norm_forward_cpu({.x = x.const_data_ptr(),
                               .weight = nullptr,
                               .bias = nullptr,
                               .y = y.data(),
                               .mean = stats.matrix()[0].mutable_data_ptr(),
                               .rstd = stats.matrix()[1].mutable_data_ptr(),
                               .rows = rows,
                               .dim = dim,
                               .x_stride = dim,
                               .y_stride = y.stride(),
                               .eps = kEps},
                              DType::f64);
  y.check("y");
  stats.check("mean and rstd");
  ops::layer_norm_backward_cpu({.x = x.const_data_ptr(),
                                .weight = nullptr,
                                .mean = stats.matrix()[0].const_data_ptr(),
                                .rstd = stats.matrix()[1].const_data_ptr(),
                                .dy = dy.const_data_ptr(),
                                .dx = dx.data(),
                                .dweight = weights.matrix()[0].mutable_data_ptr(),
                                .dbias = weights.matrix()[1].mutable_data_ptr(),
                                .workspace = nullptr,
                                .rows = rows,
                                .dim = dim,
                                .x_stride = dim,
                                .dy_stride = dim,
                                .dx_stride = dx.stride()},
                               DType::f64);
  dx.check("dx");
  weights.check("dweight and dbias");
  EXPECT_LE(max_abs(y.matrix() - oracle::layer_norm(x, {}, {}, kEps)), 1e-12);
  const auto expected = oracle::layer_norm_backward(x, {}, dy, kEps);
  // One element: rstd is about 1 / sqrt(eps), and dx a difference of equal numbers.
  EXPECT_LE(max_abs(dx.matrix() - expected.dx), 1e-11);
  EXPECT_LE(max_abs(weights.matrix()[0] - expected.dweight), 1e-10);
}

TEST(LayerNorm, GradientsMatchCentralDifferences) {
  at::manual_seed(4);
  for (const auto& [rows, dim] : {Case{1, 5}, Case{7, 9}}) {
    const std::vector<Tensor> inputs{random({rows, dim}), random({dim}), random({dim})};
    expect_gradients([](auto& in) { return ops::layer_norm(in[0], in[1], in[2], kEps); }, inputs);
    expect_gradients([](auto& in) { return ops::layer_norm(in[0], {}, {}, kEps); }, {inputs[0]});
    expect_gradients([](auto& in) { return ops::layer_norm(in[0], in[1], {}, kEps); },
                     {inputs[0], inputs[1]});
    expect_gradients([](auto& in) { return ops::layer_norm(in[0], {}, in[1], kEps); },
                     {inputs[0], inputs[2]});
  }
}

TEST(LayerNorm, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(5);
  const Tensor x = random({3001, 50}, at::kFloat), dy = random({3001, 50}, at::kFloat);
  const Tensor weight = random({50}, at::kFloat), bias = random({50}, at::kFloat);
  expect_same_for_any_threads([&] {
    const Tensor a = x.detach().requires_grad_(), w = weight.detach().requires_grad_();
    const Tensor b = bias.detach().requires_grad_();
    const Tensor y = ops::layer_norm(a, w, b, kEps);
    const auto d = torch::autograd::grad({y}, {a, w, b}, {dy});
    return std::vector<Tensor>{y, d[0], d[1], d[2]};
  });
}

TEST(LayerNorm, LargeMeansKeepTheirPrecision) {
  const Tensor x = (at::arange(64, at::kFloat).view({1, 64}) / 64 + 4096);
  const Tensor reference = oracle::layer_norm(x.to(at::kDouble), {}, {}, kEps);
  EXPECT_LE(max_abs(ops::layer_norm(x, {}, {}, kEps).to(at::kDouble) - reference), 1e-5);
}

TEST(LayerNorm, IsRegisteredWithTorch) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("seqfuse::layer_norm", "");
  const Tensor x = random({3, 4});
  torch::jit::Stack stack{x, c10::IValue(), c10::IValue(), kEps};
  op.callBoxed(&stack);
  EXPECT_TRUE(at::equal(stack.at(0).toTensor(), ops::layer_norm(x, {}, {}, kEps)));
}

TEST(LayerNorm, WrongArgumentsAreExplained) {
  const Tensor x = random({3, 4});
  expect_error([&] { ops::layer_norm(random({4}), {}, {}, kEps); },
               "layer_norm: x is [4] (1-D); expected [T, D] (2-D)");
  expect_error([&] { ops::layer_norm(random({3, 0}), {}, {}, kEps); },
               "layer_norm: x is [3, 0]; expected at least one column");
  expect_error([&] { ops::layer_norm(x, random({5}), {}, kEps); },
               "layer_norm: weight is [5]; expected [4] (the columns of its input)");
  expect_error([&] { ops::layer_norm(x, {}, random({4}, at::kFloat), kEps); },
               "layer_norm: bias is Float on cpu; expected Double on cpu, like x");
  expect_error([&] { ops::layer_norm(x.to(at::kLong), {}, {}, kEps); },
               "layer_norm: x is Long; expected Float or Double on the CPU");
}

}  // namespace
}  // namespace seqfuse::layer_norm_test
