#include "ops/kernels/norm/l2_normalize.h"

#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/l2_normalize.h"

namespace seqfuse::l2_normalize_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-6;

struct Case {
  int64_t rows, dim;
};

class L2NormalizeCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// A warp per row (up to 1024) and a block per row.
INSTANTIATE_TEST_SUITE_P(Shapes, L2NormalizeCudaTest,
                         testing::Combine(testing::Values(Case{0, 5}, Case{2, 1}, Case{37, 7},
                                                          Case{3001, 50}, Case{301, 64},
                                                          Case{9, 1023}, Case{8, 1024},
                                                          Case{3, 1025}, Case{5, 20000}),
                                          cuda_types()));

Tensor ours(const std::vector<Tensor>& in) {
  return ops::l2_normalize(in[0], kEps);
}

Tensor plain(const std::vector<Tensor>& in) {
  return in[0] / in[0].norm(2, 1, true).clamp_min(kEps);
}

TEST_P(L2NormalizeCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const Tensor x = (random({shape.rows, shape.dim}) * 2).to(type).cuda();
  const Tensor dy = random({shape.rows, shape.dim}, type).cuda();
  const auto results = with_gradients(ours, {x}, dy), torch = with_gradients(plain, {x}, dy);
  auto reference = with_gradients(plain, {to64(x)}, to64(dy));
  reference[0] = oracle::l2_normalize(to64(x), kEps);
  expect_oracle_rule(results[0], torch[0], reference[0], 2, "y");
  if (shape.dim == 1) {
    EXPECT_LE(max_abs(to64(results[1]) * to64(x)), 1e-5);  // 0 up to rounding
  } else {
    expect_oracle_rule(results[1], torch[1], reference[1], 5, "dx");
  }
  expect_equal(with_gradients(ours, {x}, dy), results, "run to run");
}

TEST_P(L2NormalizeCudaTest, StridesDoNotMatter) {
  const auto [shape, type] = GetParam();
  const Tensor x = random({shape.rows, shape.dim}, type).cuda();
  const Tensor dy = random({shape.rows, shape.dim}, type).cuda();
  const auto y = ops::l2_normalize(x, kEps);
  expect_close({ops::l2_normalize(with_row_gaps(x), kEps)}, {y}, "row gaps");
  expect_close({ops::l2_normalize(transposed(x), kEps)}, {y}, "transposed");
  if (shape.dim == 1) return;  // dx is rounding error only
  expect_close(with_gradients(ours, {with_row_gaps(x)}, with_row_gaps(dy)),
               with_gradients(ours, {x}, dy), "gradients, row gaps");
}

TEST_P(L2NormalizeCudaTest, RowsShorterThanEpsAreDividedByIt) {
  const auto type = std::get<1>(GetParam());
  const Tensor x = at::full({1, 4}, .25, at::TensorOptions().device(at::kCUDA).dtype(type));
  const auto results =
      with_gradients([](auto& in) { return ops::l2_normalize(in[0], 2); }, {x}, at::ones_like(x));
  EXPECT_TRUE(at::equal(results[0], at::full_like(x, .125)));
  EXPECT_TRUE(at::equal(results[1], at::full_like(x, .5)));
  EXPECT_EQ(max_abs(ops::l2_normalize(at::zeros_like(x), kEps)), 0);
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(L2NormalizeCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const Tensor x = random({rows, dim}, type).cuda(), dy = random({rows, dim}, type).cuda();
  const GuardedMatrix y(rows, dim, x.options()), norm(1, rows, x.options().dtype(at::kFloat)),
      dx(rows, dim, x.options());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(ops::l2_normalize_forward_cuda({.x = x.const_data_ptr(),
                                                 .y = y.data(),
                                                 .norm = norm.data(),
                                                 .rows = rows,
                                                 .dim = dim,
                                                 .x_stride = dim,
                                                 .y_stride = y.stride(),
                                                 .eps = kEps},
                                                kernel_dtype(type), stream));
  C10_CUDA_CHECK(ops::l2_normalize_backward_cuda({.x = x.const_data_ptr(),
                                                  .norm = norm.data(),
                                                  .dy = dy.const_data_ptr(),
                                                  .dx = dx.data(),
                                                  .rows = rows,
                                                  .dim = dim,
                                                  .x_stride = dim,
                                                  .dy_stride = dim,
                                                  .dx_stride = dx.stride(),
                                                  .eps = kEps},
                                                 kernel_dtype(type), stream));
  y.check("y");
  norm.check("norm");
  dx.check("dx");
}
#endif

}  // namespace
}  // namespace seqfuse::l2_normalize_cuda_test
