#include "ops/kernels/norm/layer_norm_gate.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/layer_norm_gate.h"

namespace seqfuse::layer_norm_gate_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-6;
constexpr int64_t kSeed = 77;
const std::vector<std::string> kNames{"y", "do", "du", "dweight", "dbias"};

struct Case {
  int64_t rows, dim;
  double dropout;
};

class LayerNormGateCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// Each kernel at its limits, as in layer_norm_cuda_test.cpp. Rows of 64, 512 and 8192 start at
// chunks of 128 mask elements, or in their middle; rows of other sizes anywhere. 7000 rows of 64
// and 1200 of 2048 are more than run at once.
INSTANTIATE_TEST_SUITE_P(
    Shapes, LayerNormGateCudaTest,
    testing::Combine(testing::Values(Case{0, 64, .2}, Case{1, 1, .5}, Case{3, 7, .5},
                                     Case{1025, 50, .2}, Case{700, 64, .2}, Case{129, 50, 0},
                                     Case{33, 511, .2}, Case{65, 512, .3}, Case{40, 1023, .2},
                                     Case{70, 2048, .2}, Case{9, 2051, .2}, Case{3, 8192, .2},
                                     Case{5, 8193, .2}, Case{7000, 64, .2}, Case{1200, 2048, .2}),
                     cuda_types()));

struct Problem {
  std::vector<Tensor> inputs;  // o, u, weight, bias
  Tensor dy, factors;          // factors: float64, on the CPU
  double dropout;

  Problem(const Case& c, at::ScalarType type)
      : inputs{(random({c.rows, c.dim}) * 2 + 1).to(type).cuda(),
               random({c.rows, c.dim}, type).cuda(), random({c.dim}, type).cuda(),
               random({c.dim}, type).cuda()},
        dy(random({c.rows, c.dim}, type).cuda()),
        factors(ops::dropout(at::ones({c.rows, c.dim}, at::kDouble), c.dropout, kSeed)),
        dropout(c.dropout) {}

  Tensor ours(const std::vector<Tensor>& in) const {
    return ops::layer_norm_gate(in[0], in[1], in[2], in[3], kEps, dropout, kSeed);
  }
  Tensor plain(const std::vector<Tensor>& in) const {
    return in[1] * at::layer_norm(in[0], {in[0].size(1)}, in[2], in[3], kEps) *
           factors.to(in[0].options());
  }
};

TEST_P(LayerNormGateCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const Problem problem(shape, type);
  const auto run_ours = [&](auto& in) { return problem.ours(in); };
  const auto run_plain = [&](auto& in) { return problem.plain(in); };
  auto ours = with_gradients(run_ours, problem.inputs, problem.dy);
  const auto plain = with_gradients(run_plain, problem.inputs, problem.dy);
  const auto inputs64 = to64(problem.inputs);
  auto reference = with_gradients(run_plain, inputs64, to64(problem.dy));
  reference[0] = oracle::layer_norm_gate(inputs64[0], inputs64[1], inputs64[2], inputs64[3], kEps,
                                         shape.dropout, kSeed);
  expect_equal(with_gradients(run_ours, problem.inputs, problem.dy), ours, "run to run");
  if (shape.dim == 1) {
    EXPECT_LE(max_abs(ours[1]), 1e-1);  // 0 up to rounding: terms of about dy / sqrt(eps) cancel
    ours[1] = plain[1];
  }
  expect_oracle_rules(ours, plain, reference, kNames);
}

TEST_P(LayerNormGateCudaTest, DropsWhatTheCpuDrops) {
  const auto [shape, type] = GetParam();
  const Problem problem(shape, type);
  std::vector<Tensor> ones{problem.inputs[0], at::ones_like(problem.dy),
                           at::zeros_like(problem.inputs[2]), at::ones_like(problem.inputs[3])};
  // The norm is 1 everywhere, so y and du are the factors.
  const auto results = with_gradients([&](auto& in) { return problem.ours(in); }, ones, ones[1]);
  const Tensor expected = problem.factors.to(at::kFloat).to(type).cuda();
  EXPECT_TRUE(at::equal(results[0], expected)) << "y";
  EXPECT_TRUE(at::equal(results[2], expected)) << "du";
}

TEST_P(LayerNormGateCudaTest, StridesAndMisalignmentDoNotMatter) {
  const auto [shape, type] = GetParam();
  const Problem problem(shape, type);
  const auto gate = [&](auto& in) { return problem.ours(in); };
  const auto& [o, u, w, b] =
      std::tie(problem.inputs[0], problem.inputs[1], problem.inputs[2], problem.inputs[3]);
  const auto expected = with_gradients(gate, problem.inputs, problem.dy);
  expect_close(with_gradients(gate, {with_row_gaps(o), u, w, b}, with_row_gaps(problem.dy)),
               expected, "row gaps");
  expect_close(with_gradients(gate, {o, with_row_gaps(u), w, b}, problem.dy), expected,
               "row gaps in u");
  expect_close(with_gradients(gate, {transposed(o), transposed(u), w, b}, problem.dy), expected,
               "transposed");
}

TEST_P(LayerNormGateCudaTest, AbsentWeightIsOnes) {
  const auto [shape, type] = GetParam();
  const Problem problem(shape, type);
  const std::vector<Tensor> leaves{problem.inputs[0], problem.inputs[1]};
  const Tensor ones = at::ones_like(problem.inputs[2]), zeros = at::zeros_like(ones);
  const auto bare = [&](auto& in) { return problem.ours({in[0], in[1], Tensor(), Tensor()}); };
  const auto affine = [&](auto& in) { return problem.ours({in[0], in[1], ones, zeros}); };
  expect_equal(with_gradients(bare, leaves, problem.dy), with_gradients(affine, leaves, problem.dy),
               "bare");
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(LayerNormGateCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim, p] = shape;
  const Problem problem(shape, type);
  const Tensor &o = problem.inputs[0], &u = problem.inputs[1];
  const auto floats = o.options().dtype(at::kFloat);
  const GuardedMatrix y(rows, dim, o.options()), mean(1, rows, floats), rstd(1, rows, floats),
      d_o(rows, dim, o.options()), du(rows, dim, o.options()), dweight(1, dim, o.options()),
      dbias(1, dim, o.options());
  const GuardedMatrix workspace(1, ops::layer_norm_gate_backward_partials(rows, dim) * 2 * dim,
                                floats);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(ops::layer_norm_gate_forward_cuda({.o = o.const_data_ptr(),
                                                    .u = u.const_data_ptr(),
                                                    .weight = nullptr,
                                                    .bias = nullptr,
                                                    .y = y.data(),
                                                    .mean = mean.data(),
                                                    .rstd = rstd.data(),
                                                    .rows = rows,
                                                    .dim = dim,
                                                    .o_stride = dim,
                                                    .u_stride = dim,
                                                    .y_stride = y.stride(),
                                                    .eps = kEps,
                                                    .dropout = p,
                                                    .seed = kSeed},
                                                   kernel_dtype(type), stream));
  C10_CUDA_CHECK(
      ops::layer_norm_gate_backward_cuda({.o = o.const_data_ptr(),
                                          .u = u.const_data_ptr(),
                                          .weight = nullptr,
                                          .bias = nullptr,
                                          .mean = mean.data(),
                                          .rstd = rstd.data(),
                                          .dy = problem.dy.const_data_ptr(),
                                          .d_o = d_o.data(),
                                          .du = du.data(),
                                          .dweight = dweight.data(),
                                          .dbias = dbias.data(),
                                          .workspace = static_cast<float*>(workspace.data()),
                                          .rows = rows,
                                          .dim = dim,
                                          .o_stride = dim,
                                          .u_stride = dim,
                                          .dy_stride = dim,
                                          .d_o_stride = d_o.stride(),
                                          .du_stride = du.stride(),
                                          .dropout = p,
                                          .seed = kSeed},
                                         kernel_dtype(type), stream));
  y.check("y");
  mean.check("mean");
  rstd.check("rstd");
  d_o.check("do");
  du.check("du");
  dweight.check("dweight");
  dbias.check("dbias");
  workspace.check("workspace");
}
#endif

}  // namespace
}  // namespace seqfuse::layer_norm_gate_cuda_test
