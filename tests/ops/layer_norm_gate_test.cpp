#include "ops/kernels/norm/layer_norm_gate.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/layer_norm_gate.h"

namespace seqfuse::layer_norm_gate_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-6;
constexpr int64_t kSeed = 77;

struct Case {
  int64_t rows, dim;
  double dropout;
};

class LayerNormGateTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNormGateTest,
                         testing::Values(Case{0, 8, .2}, Case{1, 50, 0}, Case{3, 7, .5},
                                         Case{129, 50, .2}, Case{400, 33, 0}, Case{5, 2050, .2}));

TEST_P(LayerNormGateTest, ForwardAndGradientsKeepTheOracleRule) {
  const auto [rows, dim, p] = GetParam();
  at::manual_seed(1);
  const Tensor dy = random({rows, dim}, at::kFloat);
  const std::vector<Tensor> inputs{random({rows, dim}, at::kFloat) * 2,
                                   random({rows, dim}, at::kFloat), random({dim}, at::kFloat),
                                   random({dim}, at::kFloat)};
  const Tensor factors = oracle::dropout_factors(rows * dim, p, kSeed).view({rows, dim});
  const auto run = [&](at::ScalarType type, auto&& f) {
    std::vector<Tensor> leaves;
    for (const Tensor& t : inputs) leaves.push_back(t.to(type).detach().clone().requires_grad_());
    const Tensor y = f(leaves);
    y.backward(dy.to(type));
    return std::vector<Tensor>{y, leaves[0].grad(), leaves[1].grad(), leaves[2].grad(),
                               leaves[3].grad()};
  };
  const auto plain_maths = [&](auto& in) {
    return in[1] * at::layer_norm(in[0], {in[0].size(1)}, in[2], in[3], kEps) *
           factors.to(in[0].dtype());
  };
  const auto ours = run(at::kFloat, [&](auto& in) {
    return ops::layer_norm_gate(in[0], in[1], in[2], in[3], kEps, p, kSeed);
  });
  const auto plain = run(at::kFloat, plain_maths);
  auto reference = run(at::kDouble, plain_maths);
  std::vector<Tensor> inputs64;
  for (const Tensor& t : inputs) inputs64.push_back(t.to(at::kDouble));
  reference[0] =
      oracle::layer_norm_gate(inputs64[0], inputs64[1], inputs64[2], inputs64[3], kEps, p, kSeed);
  const char* names[] = {"y", "do", "du", "dweight", "dbias"};
  for (size_t i = 0; i < 5; ++i)
    expect_oracle_rule(ours[i], plain[i], reference[i], i == 0 ? 2 : 5, names[i]);
}

TEST_P(LayerNormGateTest, StridedInputsGiveTheSameBits) {
  const auto [rows, dim, p] = GetParam();
  at::manual_seed(2);
  const Tensor o = random({rows, dim}), u = random({rows, dim}), weight = random({dim}),
               bias = random({dim});
  const Tensor expected = ops::layer_norm_gate(o, u, weight, bias, kEps, p, kSeed);
  const auto gate = [&](const Tensor& rows_of_o, const Tensor& rows_of_u) {
    return ops::layer_norm_gate(rows_of_o, rows_of_u, weight, bias, kEps, p, kSeed);
  };
  EXPECT_TRUE(at::equal(gate(with_row_gaps(o), with_row_gaps(u)), expected));
  EXPECT_TRUE(at::equal(gate(transposed(o), transposed(u)), expected));
}

TEST_P(LayerNormGateTest, WritesItsOutputsAndNothingElse) {
  const auto [rows, dim, p] = GetParam();
  at::manual_seed(3);
  const Tensor o = random({rows, dim}), u = random({rows, dim}), dy = random({rows, dim});
  const auto options = o.options();
  const GuardedMatrix y(rows, dim, options), stats(2, rows, options), d_o(rows, dim, options),
      du(rows, dim, options), weights(2, dim, options);
  ops::layer_norm_gate_forward_cpu({.o = o.const_data_ptr(),
                                    .u = u.const_data_ptr(),
                                    .weight = nullptr,
                                    .bias = nullptr,
                                    .y = y.data(),
                                    .mean = stats.matrix()[0].mutable_data_ptr(),
                                    .rstd = stats.matrix()[1].mutable_data_ptr(),
                                    .rows = rows,
                                    .dim = dim,
                                    .o_stride = dim,
                                    .u_stride = dim,
                                    .y_stride = y.stride(),
                                    .eps = kEps,
                                    .dropout = p,
                                    .seed = kSeed},
                                   DType::f64);
  y.check("y");
  stats.check("mean and rstd");
  EXPECT_LE(max_abs(y.matrix() - oracle::layer_norm_gate(o, u, {}, {}, kEps, p, kSeed)), 1e-12);
  ops::layer_norm_gate_backward_cpu({.o = o.const_data_ptr(),
                                     .u = u.const_data_ptr(),
                                     .weight = nullptr,
                                     .bias = nullptr,
                                     .mean = stats.matrix()[0].const_data_ptr(),
                                     .rstd = stats.matrix()[1].const_data_ptr(),
                                     .dy = dy.const_data_ptr(),
                                     .d_o = d_o.data(),
                                     .du = du.data(),
                                     .dweight = weights.matrix()[0].mutable_data_ptr(),
                                     .dbias = weights.matrix()[1].mutable_data_ptr(),
                                     .rows = rows,
                                     .dim = dim,
                                     .o_stride = dim,
                                     .u_stride = dim,
                                     .dy_stride = dim,
                                     .d_o_stride = d_o.stride(),
                                     .du_stride = du.stride(),
                                     .dropout = p,
                                     .seed = kSeed},
                                    DType::f64);
  d_o.check("do");
  du.check("du");
  weights.check("dweight and dbias");
}

TEST(LayerNormGate, GradientsMatchCentralDifferences) {
  at::manual_seed(4);
  const std::vector<Tensor> inputs{random({7, 9}), random({7, 9}), random({9}), random({9})};
  for (const double p : {0.0, 0.3}) {
    expect_gradients(
        [p](auto& in) { return ops::layer_norm_gate(in[0], in[1], in[2], in[3], kEps, p, kSeed); },
        inputs);
    expect_gradients(
        [p](auto& in) { return ops::layer_norm_gate(in[0], in[1], {}, {}, kEps, p, kSeed); },
        {inputs[0], inputs[1]});
  }
}

TEST(LayerNormGate, DropsWhatDropoutDrops) {
  at::manual_seed(5);
  const Tensor o = random({300, 50}), u = random({300, 50}), weight = random({50}),
               bias = random({50});
  const Tensor whole = ops::layer_norm_gate(o, u, weight, bias, kEps, 0, kSeed);
  EXPECT_TRUE(at::allclose(ops::layer_norm_gate(o, u, weight, bias, kEps, .2, kSeed),
                           ops::dropout(whole, .2, kSeed), 1e-14, 1e-14));
}

TEST(LayerNormGate, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(6);
  const Tensor o = random({3001, 50}, at::kFloat), u = random({3001, 50}, at::kFloat);
  const Tensor w = random({50}, at::kFloat), b = random({50}, at::kFloat),
               dy = random({3001, 50}, at::kFloat);
  expect_same_for_any_threads([&] {
    std::vector<Tensor> leaves;
    for (const Tensor& t : {o, u, w, b}) leaves.push_back(t.detach().requires_grad_());
    const Tensor y =
        ops::layer_norm_gate(leaves[0], leaves[1], leaves[2], leaves[3], kEps, .2, kSeed);
    auto results = torch::autograd::grad({y}, leaves, {dy});
    results.push_back(y);
    return results;
  });
}

TEST(LayerNormGate, WrongArgumentsAreExplained) {
  const Tensor o = random({3, 4});
  expect_error([&] { ops::layer_norm_gate(o, random({3, 5}), {}, {}, kEps, 0, 1); },
               "layer_norm_gate: u is [3, 5]; expected [3, 4] (the shape of o)");
  expect_error([&] { ops::layer_norm_gate(o, random({3, 4}, at::kFloat), {}, {}, kEps, 0, 1); },
               "layer_norm_gate: u is Float on cpu; expected Double on cpu, like o");
  expect_error([&] { ops::layer_norm_gate(o, o, random({3}), {}, kEps, 0, 1); },
               "layer_norm_gate: weight is [3]; expected [4]");
  expect_error([&] { ops::layer_norm_gate(o, o, {}, {}, kEps, 1, 1); },
               "layer_norm_gate: the dropout probability is 1; expected 0 <= p < 1");
}

}  // namespace
}  // namespace seqfuse::layer_norm_gate_test
