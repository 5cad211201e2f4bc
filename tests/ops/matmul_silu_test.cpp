// The parts of the product with SiLU that need no GPU: argument checks, and which sizes the kernels
// support.
#include "ops/kernels/gemm/gemm_silu.h"
#include "ops/torch/gemm/matmul.h"
#include "tests/ops/op_test.h"

namespace seqfuse::matmul_silu_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

void expect_told(const Tensor& y, const Tensor& z, const Tensor& a, const Tensor& b,
                 const Tensor& bias, const char* text) {
  expect_error([&] { ops::matmul_silu_into(y, z, a, b, bias); }, text);
}

TEST(MatmulSilu, ChecksItsArguments) {
  const auto of = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kBFloat16); };
  const Tensor a = of({3, 16}), b = of({16, 8}), y = of({3, 8}), none;
  expect_told(y, none, of({3}), b, none, "matmul_silu: a is [3] (1-D); expected [M, K]");
  expect_told(y, none, a, of({16}), none, "matmul_silu: b is [16] (1-D); expected [K, N]");
  expect_told(y, none, a, of({8, 8}), none, "matmul_silu: b is [8, 8]; expected [16, 8]");
  expect_told(of({3, 9}), none, a, b, none, "matmul_silu: y is [3, 9]; expected [3, 8]");
  expect_told(y, of({4, 8}), a, b, none, "matmul_silu: z is [4, 8]; expected [3, 8]");
  expect_told(y, none, a, b, of({16}), "matmul_silu: bias is [16]; expected [8]");
  expect_told(y, none, a, b.to(at::kHalf), none, "matmul_silu: b is Half");
  expect_told(y.to(at::kFloat), none, a, b, none, "matmul_silu: y is Float");
  expect_told(y, y.to(at::kFloat), a, b, none, "matmul_silu: z is Float");
  expect_told(y, none, a, b, at::zeros({8}), "matmul_silu: bias is Float");
  expect_told(y, y.clone(), a, b, of({8}), "matmul_silu: a is on cpu; expected a CUDA device");
}

#ifdef SEQFUSE_HAS_CUDA
TEST(MatmulSilu, KernelsTakeWhatIsAligned) {
  alignas(16) char memory[32] = {};
  const ops::GemmSiluParams fits{.a = memory,
                                 .b = memory,
                                 .bias = memory,
                                 .y = memory,
                                 .z = memory,
                                 .m = 25601,
                                 .n = 200,
                                 .k = 56,
                                 .a_stride = 64,
                                 .b_stride = 200,
                                 .y_stride = 208,
                                 .z_stride = 200};
  const auto takes = [&](const std::function<void(ops::GemmSiluParams&)>& change,
                         DType dtype = DType::bf16) {
    ops::GemmSiluParams params = fits;
    change(params);
    return ops::gemm_silu_cuda_takes(params, dtype);
  };
  EXPECT_TRUE(takes([](auto&) {}));
  EXPECT_TRUE(takes([](auto&) {}, DType::f16));
  EXPECT_FALSE(takes([](auto&) {}, DType::f32));
  EXPECT_TRUE(takes([](auto& p) { p.m = 0; }));
  EXPECT_TRUE(takes([](auto& p) { p.bias = p.z = nullptr; }));
  for (const auto& size : {&ops::GemmSiluParams::n, &ops::GemmSiluParams::k}) {
    EXPECT_FALSE(takes([&](auto& p) { p.*size = 0; }));
    EXPECT_FALSE(takes([&](auto& p) { p.*size = 50; }));
    EXPECT_FALSE(takes([&](auto& p) { p.*size = int64_t{1} << 30; }));
  }
  for (const auto& stride : {&ops::GemmSiluParams::a_stride, &ops::GemmSiluParams::b_stride,
                             &ops::GemmSiluParams::y_stride, &ops::GemmSiluParams::z_stride})
    EXPECT_FALSE(takes([&](auto& p) { p.*stride = 204; }));
  EXPECT_FALSE(takes([&](auto& p) { p.a = memory + 2; }));
  EXPECT_FALSE(takes([&](auto& p) { p.b = memory + 4; }));
  EXPECT_FALSE(takes([&](auto& p) { p.bias = memory + 8; }));
  EXPECT_FALSE(takes([&](auto& p) { p.y = memory + 8; }));
  EXPECT_FALSE(takes([&](auto& p) { p.z = memory + 8; }));
}
#endif

}  // namespace
}  // namespace seqfuse::matmul_silu_test
