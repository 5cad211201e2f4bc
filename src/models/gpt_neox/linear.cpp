#include "models/gpt_neox/linear.h"

#include "ops/torch/decode.h"

namespace seqfuse::models::gpt_neox {
using at::Tensor;

Tensor Linear::operator()(const Tensor& x, LinearActivation activation,
                          const Tensor& residual) const {
  if (x.is_cpu() && x.scalar_type() != at::kDouble) {
    return ops::decode_linear(x, {weight, scales, bias}, activation, residual);
  }
  Tensor y = at::linear(x, weight, bias);
  if (activation != LinearActivation::none) {
    y = at::gelu(y, activation == LinearActivation::gelu_erf ? "none" : "tanh");
  }
  return residual.defined() ? y + residual : y;
}

int64_t Linear::bytes() const {
  int64_t total = 0;
  for (const Tensor& tensor : {weight, scales, bias}) {
    total += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  }
  return total;
}

}  // namespace seqfuse::models::gpt_neox
