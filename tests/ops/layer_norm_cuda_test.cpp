// Layer norm on a GPU. Skipped, with a reason, if the build or the machine has none.
#include "ops/kernels/norm/layer_norm.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/layer_norm.h"

namespace seqfuse::layer_norm_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows, dim;
};

class LayerNormCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// Each kernel at its limits: rows of a warp (up to 256), of 64, 128 and 256 threads (512, 1024 and
// 2048), of 1024 threads (8192), streaming; dims with and without vector loads. 5000 rows of 64 and
// 700 of 2048 are more than run at once.
INSTANTIATE_TEST_SUITE_P(
    Shapes, LayerNormCudaTest,
    testing::Combine(testing::Values(Case{0, 64}, Case{1, 1}, Case{3, 7}, Case{1025, 50},
                                     Case{5000, 64}, Case{33, 511}, Case{65, 512}, Case{129, 520},
                                     Case{40, 1023}, Case{700, 2048}, Case{9, 2051}, Case{11, 4096},
                                     Case{3, 8192}, Case{5, 8193}, Case{7, 20000}),
                     cuda_types()));

Tensor layer_norm(const std::vector<Tensor>& in) {
  return ops::layer_norm(in[0], in[1], in[2], kEps);
}

Tensor torch_layer_norm(const std::vector<Tensor>& in) {
  return at::layer_norm(in[0], {in[0].size(1)}, in[1], in[2], kEps);
}

TEST_P(LayerNormCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const std::vector<Tensor> inputs{(random({rows, dim}) * 3 + 1).to(type).cuda(),
                                   random({dim}, type).cuda(), random({dim}, type).cuda()};
  const Tensor dy = random({rows, dim}, type).cuda();
  const auto ours = with_gradients(layer_norm, inputs, dy);
  const auto plain = with_gradients(torch_layer_norm, inputs, dy);
  const Tensor x64 = to64(inputs[0]), w64 = to64(inputs[1]);
  const auto d64 = oracle::layer_norm_backward(x64, w64, to64(dy), kEps);
  expect_oracle_rule(ours[0], plain[0], oracle::layer_norm(x64, w64, to64(inputs[2]), kEps), 2,
                     "y");
  if (dim == 1) {
    EXPECT_LE(max_abs(ours[1]), 1e-1);  // 0 up to rounding: terms of about dy / sqrt(eps) cancel
  } else {
    expect_oracle_rule(ours[1], plain[1], d64.dx, 5, "dx");
  }
  expect_oracle_rule(ours[2], plain[2], d64.dweight, 5, "dweight");
  expect_oracle_rule(ours[3], plain[3], d64.dbias, 5, "dbias");
  expect_equal(with_gradients(layer_norm, inputs, dy), ours, "run to run");
}

TEST_P(LayerNormCudaTest, StridesAndMisalignmentDoNotMatter) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const Tensor x = random({rows, dim}, type).cuda(), w = random({dim}, type).cuda();
  const Tensor dy = random({rows, dim}, type).cuda();
  const Tensor shifted = at::cat({w, w}).slice(0, 1, 1 + dim).copy_(w);  // off a 16-byte boundary
  const auto expected = with_gradients(layer_norm, {x, w, w}, dy);
  expect_close(with_gradients(layer_norm, {with_row_gaps(x), w, w}, with_row_gaps(dy)), expected,
               "row gaps");
  expect_close(with_gradients(layer_norm, {transposed(x), w, w}, transposed(dy)), expected,
               "transposed");
  expect_close(with_gradients(layer_norm, {x, shifted, w}, dy), expected, "shifted weight");
}

TEST_P(LayerNormCudaTest, AbsentWeightIsOnes) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const Tensor x = random({rows, dim}, type).cuda();
  const Tensor ones = at::ones({dim}, x.options()), zeros = at::zeros({dim}, x.options());
  const Tensor a = x.detach().requires_grad_(), b = x.detach().requires_grad_();
  const Tensor bare = ops::layer_norm(a, {}, {}, kEps),
               affine = ops::layer_norm(b, ones, zeros, kEps);
  EXPECT_TRUE(at::equal(bare, affine));
  EXPECT_TRUE(at::equal(torch::autograd::grad({bare}, {a}, {x})[0],
                        torch::autograd::grad({affine}, {b}, {x})[0]));
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(LayerNormCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [shape, type] = GetParam();
  const auto [rows, dim] = shape;
  const DType dtype = kernel_dtype(type);
  const Tensor x = random({rows, dim}, type).cuda(), dy = random({rows, dim}, type).cuda();
  const auto floats = x.options().dtype(at::kFloat);
  const GuardedMatrix y(rows, dim, x.options()), mean(1, rows, floats), rstd(1, rows, floats),
      dx(rows, dim, x.options()), dweight(1, dim, x.options()), dbias(1, dim, x.options());
  const GuardedMatrix workspace(1, ops::layer_norm_backward_partials(rows, dim) * 2 * dim, floats);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(ops::layer_norm_forward_cuda({.x = x.const_data_ptr(),
                                               .weight = nullptr,
                                               .bias = nullptr,
                                               .y = y.data(),
                                               .mean = mean.data(),
                                               .rstd = rstd.data(),
                                               .rows = rows,
                                               .dim = dim,
                                               .x_stride = dim,
                                               .y_stride = y.stride(),
                                               .eps = kEps},
                                              dtype, stream));
  C10_CUDA_CHECK(ops::layer_norm_backward_cuda({.x = x.const_data_ptr(),
                                                .weight = nullptr,
                                                .mean = mean.data(),
                                                .rstd = rstd.data(),
                                                .dy = dy.const_data_ptr(),
                                                .dx = dx.data(),
                                                .dweight = dweight.data(),
                                                .dbias = dbias.data(),
                                                .workspace = static_cast<float*>(workspace.data()),
                                                .rows = rows,
                                                .dim = dim,
                                                .x_stride = dim,
                                                .dy_stride = dim,
                                                .dx_stride = dx.stride()},
                                               dtype, stream));
  y.check("y");
  mean.check("mean");
  rstd.check("rstd");
  dx.check("dx");
  dweight.check("dweight");
  dbias.check("dbias");
  workspace.check("workspace");
}
#endif

TEST_P(LayerNormCudaTest, OtherDtypesAreRefused) {
  const Tensor x = at::zeros({2, 3}, at::TensorOptions().device(at::kCUDA).dtype(at::kDouble));
  expect_error([&] { ops::layer_norm(x, {}, {}, kEps); },
               "layer_norm: x is Double on cuda:0; expected Float, Half or BFloat16 on CUDA");
}

}  // namespace
}  // namespace seqfuse::layer_norm_cuda_test
