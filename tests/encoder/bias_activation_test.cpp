#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/torch/encoder.h"
#include "tests/missing_gpu.h"

namespace seqfuse::bias_activation_test {
namespace {

using at::Tensor;
using ops::Activation;

constexpr Activation kActivations[] = {Activation::gelu_erf, Activation::gelu_tanh,
                                       Activation::relu};

// In float64, of x + bias as given.
Tensor formula(const Tensor& x, const Tensor& bias, Activation activation) {
  const Tensor v = x.cpu().to(at::kDouble) + bias.cpu().to(at::kDouble);
  if (activation == Activation::relu) return at::relu(v);
  return at::gelu(v, activation == Activation::gelu_erf ? "none" : "tanh");
}

Tensor ours(const Tensor& x, const Tensor& bias, Activation activation) {
  const Tensor y = at::empty_like(x), in_place = x.clone();
  ops::bias_activation_into(y, x, bias, activation);
  ops::bias_activation_into(in_place, in_place, bias, activation);
  EXPECT_TRUE(at::equal(y.nan_to_num(7), in_place.nan_to_num(7)));
  return y;
}

// From -30 to 30, in rows of dim.
Tensor inputs(int64_t dim, const at::TensorOptions& options) {
  return at::linspace(-30, 30, 41 * dim, at::kDouble).view({41, dim}).to(options);
}

TEST(BiasActivation, IsTheFormula) {
  for (const int64_t dim : {1, 7, 64, 130}) {
    for (const Activation activation : kActivations) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        const Tensor x = inputs(dim, type), bias = at::randn({dim}, type);
        const Tensor expected = formula(x, bias, activation);
        const Tensor error = (ours(x, bias, activation).to(at::kDouble) - expected).abs();
        const double unit = type == at::kFloat ? 2.4e-7 : 4e-16;
        const double least = type == at::kFloat ? 1e-8 : 1e-16;
        // The sum x + bias is rounded once, as is the result.
        EXPECT_LE((error - 3 * unit * (x.abs() + bias.abs()).to(at::kDouble)).max().item<double>(),
                  least)
            << dim;
      }
    }
  }
}

TEST(BiasActivation, NoRowsAndNaN) {
  const Tensor bias = at::zeros({3});
  EXPECT_EQ(ours(at::empty({0, 3}), bias, Activation::gelu_erf).numel(), 0);
  for (const Activation activation : kActivations) {
    const Tensor y = ours(at::full({1, 3}, std::nan("")), bias, activation);
    EXPECT_TRUE(y.isnan().all().item<bool>());
  }
}

TEST(BiasActivationCuda, IsTheFormulaAfterOneRounding) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  for (const int64_t dim : {7, 64, 3072}) {
    for (const Activation activation : kActivations) {
      for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const Tensor x = inputs(dim, at::TensorOptions(at::kCUDA).dtype(type));
        const Tensor bias = at::randn({dim}, x.options());
        const Tensor expected = formula(x, bias, activation);
        const Tensor error = (ours(x, bias, activation).cpu().to(at::kDouble) - expected).abs();
        const double unit = type == at::kFloat ? 6e-8 : type == at::kHalf ? 4.9e-4 : 3.9e-3;
        const Tensor size = (x.abs() + bias.abs()).cpu().to(at::kDouble);
        const Tensor allowed = unit * expected.abs() + 4e-7 * size +
                               (type == at::kHalf ? 3e-8 : 1e-8);  // subnormal halves
        EXPECT_LE((error - allowed).max().item<double>(), 0) << dim << " " << type;
      }
    }
  }
}

TEST(BiasActivationCuda, ExtremesStayFinite) {
  if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
  const Tensor x = at::tensor({-65504.0, 65504.0, 0.0, -13.5, 13.5, std::nan("")})
                       .to(at::TensorOptions(at::kHalf).device(at::kCUDA))
                       .view({1, 6});
  const Tensor bias = at::zeros({6}, x.options());
  for (const Activation activation : kActivations) {
    const Tensor y = ours(x, bias, activation)[0].cpu().to(at::kFloat);
    EXPECT_EQ(y[0].item<float>(), 0);
    EXPECT_EQ(y[1].item<float>(), 65504);
    EXPECT_EQ(y[2].item<float>(), 0);
    EXPECT_TRUE(y[5].isnan().item<bool>());
  }
}

}  // namespace
}  // namespace seqfuse::bias_activation_test
