// A linear layer as its formula says, in float64.
#pragma once

#include <torch/types.h>

#include <cmath>

#include "ops/kernels/gemm/decode_linear.h"

namespace seqfuse::oracle {

// act(x w^T + b) + r; b and r may be undefined. w: the weights as they are meant, scales applied.
inline at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                         ops::LinearActivation activation, const at::Tensor& r) {
  at::Tensor y = (x.to(at::kDouble).unsqueeze(-2) * w.to(at::kDouble)).sum(-1);
  if (b.defined()) y = y + b.to(at::kDouble);
  if (activation == ops::LinearActivation::gelu_erf) {
    y = y * 0.5 * at::erfc(-y / std::sqrt(2.0));
  } else if (activation == ops::LinearActivation::gelu_tanh) {
    y = y * 0.5 * (1 + at::tanh(std::sqrt(2 / M_PI) * (y + 0.044715 * y * y * y)));
  }
  return r.defined() ? y + r.to(at::kDouble) : y;
}

}  // namespace seqfuse::oracle
