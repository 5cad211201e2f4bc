#include "ops/kernels/gemm/bias_activation.h"

#include <cmath>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gelu_math.h"
#include "ops/cpu/row_loop.h"

namespace seqfuse::ops {
namespace {

constexpr double kHalfRoot = 0.70710678118654752;       // sqrt(1 / 2)
constexpr double kRootOfTwoByPi = 0.79788456080286536;  // sqrt(2 / pi)

float exact_gelu(float v) {
  return cpu::gelu_erf(v);
}
double exact_gelu(double v) {
  return 0.5 * v * (1 + std::erf(v * kHalfRoot));
}

float gelu_by_tanh(float v) {
  return cpu::gelu_tanh(v);
}
double gelu_by_tanh(double v) {
  return 0.5 * v * (1 + std::tanh(kRootOfTwoByPi * (v + 0.044715 * v * v * v)));
}

template <class T, class Act>
void apply_to_rows(const BiasActivationParams& params, Act&& act) {
  const auto* bias = static_cast<const T*>(params.bias);
  cpu::for_each_row(params.rows, params.dim, [&](int64_t i) {
    const T* x = static_cast<const T*>(params.x) + i * params.dim;
    T* y = static_cast<T*>(params.y) + i * params.dim;
#pragma omp simd
    for (int64_t j = 0; j < params.dim; ++j) y[j] = act(x[j] + bias[j]);
  });
}

}  // namespace

void bias_activation_cpu(const BiasActivationParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (params.activation) {
      case Activation::gelu_erf:
        return apply_to_rows<T>(params, [](T v) { return exact_gelu(v); });
      case Activation::gelu_tanh:
        return apply_to_rows<T>(params, [](T v) { return gelu_by_tanh(v); });
      case Activation::relu:
        return apply_to_rows<T>(params, [](T v) { return v < 0 ? T(0) : v; });
    }
  });
}

}  // namespace seqfuse::ops
