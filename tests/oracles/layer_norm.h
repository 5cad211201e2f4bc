// Layer norm by its formula, in float64.
#pragma once

#include <torch/types.h>

#include <cmath>

namespace seqfuse::oracle {

// x, [T, D]; weight, bias [D] or undefined; all float64.
inline at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             double eps) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto in = x.accessor<double, 2>();
  auto out = y.accessor<double, 2>();
  const int64_t dim = x.size(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < dim; ++j) mean += in[i][j] / static_cast<double>(dim);
    for (int64_t j = 0; j < dim; ++j)
      variance += std::pow(in[i][j] - mean, 2) / static_cast<double>(dim);
    const double deviation = std::sqrt(variance + eps);
    for (int64_t j = 0; j < dim; ++j) out[i][j] = (in[i][j] - mean) / deviation;
  }
  if (weight.defined()) y.mul_(weight.detach());
  if (bias.defined()) y.add_(bias.detach());
  return y;
}

struct LayerNormGradients {
  at::Tensor dx, dweight, dbias;
};

// For the gradient dy [T, D]; includes dweight and dbias even if weight and bias are undefined.
inline LayerNormGradients layer_norm_backward(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& dy, double eps) {
  LayerNormGradients d{at::empty(x.sizes(), x.options()), at::zeros({x.size(1)}, x.options()),
                       at::zeros({x.size(1)}, x.options())};
  const at::Tensor n = layer_norm(x, {}, {}, eps);
  const int64_t dim = x.size(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const at::Tensor g = weight.defined() ? dy[i] * weight : dy[i];
    const double rstd = 1 / std::sqrt((x[i] - x[i].mean()).square().mean().item<double>() + eps);
    d.dx[i] = rstd * (g - g.sum() / dim - n[i] * (g * n[i]).sum() / dim);
    d.dweight += dy[i] * n[i];
    d.dbias += dy[i];
  }
  return d;
}

}  // namespace seqfuse::oracle
