// Norms fused with residual additions on a GPU. Skipped, with a reason, if there is none.
#include "ops/kernels/norm/residual_norm.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/residual_norm.h"

namespace seqfuse::residual_norm_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows, dim;
};

class ResidualNormCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// Both sides of each kernel limit: a row per warp, up to 5120 and 16384 columns in registers,
// streaming; dims with and without vector loads.
INSTANTIATE_TEST_SUITE_P(
    Shapes, ResidualNormCudaTest,
    testing::Combine(testing::Values(Case{0, 64}, Case{1, 1}, Case{3, 7}, Case{1025, 50},
                                     Case{33, 256}, Case{33, 264}, Case{9, 511}, Case{40, 1023},
                                     Case{300, 2560}, Case{7, 5120}, Case{7, 5128}, Case{5, 5121},
                                     Case{3, 16384}, Case{3, 16392}, Case{3, 16385},
                                     Case{2, 65536}),
                     cuda_types()));

TEST_P(ResidualNormCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const auto matrix = [&](double scale = 1) {
    return (random({rows, dim}) * scale).to(type).cuda();
  };
  const auto vector = [&] { return random({dim}, type).cuda(); };
  const Tensor x = matrix(3), a = matrix(), b = matrix();
  const Tensor w = vector(), c = vector(), w2 = vector(), c2 = vector();
  expect_oracle_rule(
      ops::layer_norm_residual(x, a, w, c, kEps), at::layer_norm(x, {dim}, w, c, kEps) + a,
      oracle::layer_norm_residual(to64(x), to64(a), to64(w), to64(c), kEps), 2, "with residual");
  for (const std::vector<Tensor>& terms : {std::vector{x}, {x, a}, {x, a, b}}) {
    Tensor s = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) s = s + terms[i];
    const auto [sum, y, y2] = ops::add_dual_layer_norm(terms, w, c, w2, c2, kEps);
    EXPECT_TRUE(at::equal(sum, s)) << "the sum has the framework's order of roundings";
    expect_oracle_rule(y, at::layer_norm(s, {dim}, w, c, kEps),
                       oracle::layer_norm(to64(s), to64(w), to64(c), kEps), 2, "first norm");
    expect_oracle_rule(y2, at::layer_norm(s, {dim}, w2, c2, kEps),
                       oracle::layer_norm(to64(s), to64(w2), to64(c2), kEps), 2, "second norm");
    const auto [again, one] = ops::add_layer_norm(terms, w, c, kEps);
    EXPECT_TRUE(at::equal(one, y)) << "a second norm changes nothing";
    EXPECT_TRUE(at::equal(again, sum));
  }
  const auto [y, y2] = ops::dual_layer_norm(x, {}, c, w2, {}, kEps);
  expect_oracle_rule(y, at::layer_norm(x, {dim}, {}, c, kEps),
                     oracle::layer_norm(to64(x), {}, to64(c), kEps), 2, "without weight");
  expect_oracle_rule(y2, at::layer_norm(x, {dim}, w2, {}, kEps),
                     oracle::layer_norm(to64(x), to64(w2), {}, kEps), 2, "without bias");
}

TEST_P(ResidualNormCudaTest, RowsDoNotDependOnTheirNumber) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  if (rows == 0) return;
  const Tensor x = random({rows, dim}, type).cuda(), a = random({rows, dim}, type).cuda();
  const auto [sum, y] = ops::add_layer_norm({x, a}, {}, {}, kEps);
  const auto [first, y_first] =
      ops::add_layer_norm({x.slice(0, rows - 1), a.slice(0, rows - 1)}, {}, {}, kEps);
  EXPECT_TRUE(at::equal(first[0], sum[rows - 1]));
  if (dim % 8 == 0) {  // else the last row may be unaligned and take another kernel
    EXPECT_TRUE(at::equal(y_first[0], y[rows - 1]));
  }
}

TEST_P(ResidualNormCudaTest, StridesAndMisalignmentDoNotMatter) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const Tensor x = random({rows, dim}, type).cuda(), a = random({rows, dim}, type).cuda();
  const Tensor w = random({dim}, type).cuda();
  const auto run = [&](const Tensor& x_in, const Tensor& a_in) {
    const auto [sum, y] = ops::add_layer_norm({x_in, a_in}, w, {}, kEps);
    return std::vector<Tensor>{sum, y, ops::layer_norm_residual(x_in, a_in, w, {}, kEps)};
  };
  const auto expected = run(x, a);
  expect_close(run(with_row_gaps(x), a), expected, "row gaps in x");
  expect_close(run(x, with_row_gaps(a)), expected, "row gaps in the second term");
  expect_close(run(transposed(x), transposed(a)), expected, "transposed");
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(ResidualNormCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const Tensor x = random({rows, dim}, type).cuda(), a = random({rows, dim}, type).cuda();
  // Outputs are contiguous, so each is one row of a guarded matrix.
  const int64_t size = std::max<int64_t>(rows * dim, 1);
  const GuardedMatrix sum(1, size, x.options(), 8, 8), y(1, size, x.options(), 8, 8),
      y2(1, size, x.options(), 8, 8),
      mean(1, std::max<int64_t>(rows, 1), x.options().dtype(at::kFloat)),
      rstd(1, std::max<int64_t>(rows, 1), x.options().dtype(at::kFloat));
  if (rows == 0) return;
  C10_CUDA_CHECK(ops::residual_norm_forward_cuda({.x = x.const_data_ptr(),
                                                  .a = a.const_data_ptr(),
                                                  .sum = sum.data(),
                                                  .weight = nullptr,
                                                  .bias = nullptr,
                                                  .y = y.data(),
                                                  .y2 = y2.data(),
                                                  .mean = mean.data(),
                                                  .rstd = rstd.data(),
                                                  .rows = rows,
                                                  .dim = dim,
                                                  .x_stride = dim,
                                                  .a_stride = dim,
                                                  .eps = kEps},
                                                 kernel_dtype(type),
                                                 c10::cuda::getCurrentCUDAStream()));
  sum.check("sum");
  y.check("y");
  y2.check("y2");
  mean.check("mean");
  rstd.check("rstd");
}
#endif

}  // namespace
}  // namespace seqfuse::residual_norm_cuda_test
