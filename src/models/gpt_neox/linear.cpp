#include "models/gpt_neox/linear.h"

#include <algorithm>
#include <vector>

#include "ops/torch/decode/decode.h"

namespace seqfuse::models::gpt_neox {
using at::Tensor;
namespace {

// x W^T + bias on a GPU, in prompts and in steps without a graph. Converts the weights to the dtype of x a
// block of rows at a time.
Tensor linear_of_int8(const Tensor& x, const Linear& linear) {
  constexpr int64_t kElements = 1 << 24;
  const int64_t outputs = linear.weight.size(0);
  const int64_t block = std::max<int64_t>(kElements / linear.weight.size(1), 1);
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < outputs; begin += block) {
    const auto rows = [&](const Tensor& of) {
      return of.defined() ? of.narrow(0, begin, std::min(block, outputs - begin)) : of;
    };
    const Tensor weight = rows(linear.weight).to(at::kFloat) * rows(linear.scales).unsqueeze(1);
    parts.push_back(at::linear(x, weight.to(x.scalar_type()), rows(linear.bias)));
  }
  return at::cat(parts, -1);
}

}  // namespace

Tensor Linear::operator()(const Tensor& x, LinearActivation activation,
                          const Tensor& residual) const {
  if (x.is_cpu() && x.scalar_type() != at::kDouble) {
    return ops::decode_linear(x, {weight, scales, bias}, activation, residual);
  }
  Tensor y = scales.defined() ? linear_of_int8(x, *this) : at::linear(x, weight, bias);
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
