#include "ops/kernels/gemm/decode_linear.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/torch/checks.h"
#include "ops/torch/decode/decode.h"

namespace seqfuse::ops {
namespace decode_linear_op {
namespace {

constexpr const char* kOp = "decode_linear";
constexpr int64_t kBlockElements = 1 << 22;  // of weights that are converted at a time

WeightType weight_type(const Tensor& weight) {
  switch (weight.scalar_type()) {
    case at::kFloat:
      return WeightType::f32;
    case at::kHalf:
      return WeightType::f16;
    case at::kBFloat16:
      return WeightType::bf16;
    case at::kChar:
      return WeightType::i8;
    default:
      TORCH_CHECK_VALUE(false, kOp, ": weight is ", weight.scalar_type(),
                        "; expected Float, Half, BFloat16 or Char (int8)");
  }
}

void check_vector(const char* name, const Tensor& values, int64_t size) {
  if (!values.defined()) return;
  const Arg arg{kOp, name, values};
  check_sizes(arg, {size}, "the rows of weight");
  check_cpu(arg);
  TORCH_CHECK_VALUE(values.scalar_type() == at::kFloat && values.is_contiguous(), label(arg),
                    " is ", values.scalar_type(), "; expected Float, contiguous");
}

void check_arguments(const Tensor& x, const DecodeLinearWeights& weights, const Tensor& residual) {
  const Tensor& weight = weights.weight;
  const Arg w{kOp, "weight", weight}, in{kOp, "x", x};
  check_cpu(in);
  check_cpu(w);
  check_rank(w, 2, "[N, K]");
  TORCH_CHECK_VALUE(weight.numel() > 0 && weight.is_contiguous(), label(w), " is ", weight.sizes(),
                    "; expected elements, contiguous");
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == weight.size(1), label(in), " is ", x.sizes(),
                    "; expected [..., ", weight.size(1), "], the columns of weight");
  const auto type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, label(in),
                    " is ", type, "; expected Float, Half or BFloat16");
  weight_type(weight);
  TORCH_CHECK_VALUE(weights.scales.defined() == (weight.scalar_type() == at::kChar), label(w),
                    " is ", weight.scalar_type(), weights.scales.defined() ? " with" : " without",
                    " scales; int8 has scales, the others have none");
  check_vector("scales", weights.scales, weight.size(0));
  check_vector("bias", weights.bias, weight.size(0));
  if (!residual.defined()) return;
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  check_sizes({kOp, "residual", residual}, sizes, "like the result");
  check_like({kOp, "residual", residual}, in);
}

const float* floats_or_null(const Tensor& tensor) {
  return static_cast<const float*>(data_or_null(tensor));
}

// rows of float32 x [M, K] -> [M, N].
Tensor few_rows(const Tensor& x, const DecodeLinearWeights& weights, LinearActivation activation,
                const Tensor& residual) {
  const WeightType type = weight_type(weights.weight);
  Tensor y = at::empty({x.size(0), weights.weight.size(0)}, x.options());
  decode_linear_cpu({.x = x.const_data_ptr<float>(),
                     .weight = weights.weight.const_data_ptr(),
                     .scales = floats_or_null(weights.scales),
                     .bias = floats_or_null(weights.bias),
                     .residual = floats_or_null(residual),
                     .y = y.mutable_data_ptr<float>(),
                     .rows = x.size(0),
                     .in_features = x.size(1),
                     .out_features = y.size(1),
                     .activation = activation},
                    type);
  return y;
}

Tensor many_rows(const Tensor& x, const DecodeLinearWeights& weights, LinearActivation activation) {
  const Tensor& weight = weights.weight;
  const int64_t outputs = weight.size(0);
  const int64_t block = weight.scalar_type() == at::kFloat
                            ? outputs
                            : std::max<int64_t>(kBlockElements / weight.size(1), 1);
  Tensor y = at::empty({x.size(0), outputs}, x.options());
  for (int64_t begin = 0; begin < outputs; begin += block) {
    const int64_t count = std::min(block, outputs - begin);
    Tensor part = y.narrow(1, begin, count);
    part.copy_(at::mm(x, weight.narrow(0, begin, count).to(at::kFloat).t()));
  }
  if (weights.scales.defined()) y.mul_(weights.scales);
  if (weights.bias.defined()) y.add_(weights.bias);
  if (activation == LinearActivation::none) return y;
  return at::gelu(y, activation == LinearActivation::gelu_erf ? "none" : "tanh");
}

}  // namespace
}  // namespace decode_linear_op

Tensor decode_linear(const Tensor& x, const DecodeLinearWeights& weights,
                     LinearActivation activation, const Tensor& residual) {
  const at::NoGradGuard no_grad;
  decode_linear_op::check_arguments(x, weights, residual);
  auto sizes = x.sizes().vec();
  sizes.back() = weights.weight.size(0);
  const Tensor rows = x.reshape({-1, x.size(-1)}).to(at::kFloat).contiguous();
  if (rows.size(0) > kMaxDecodeRows || rows.size(0) == 0) {
    const Tensor y =
        decode_linear_op::many_rows(rows, weights, activation).to(x.scalar_type()).view(sizes);
    return residual.defined() ? y + residual : y;
  }
  if (x.scalar_type() == at::kFloat) {
    const Tensor added = residual.defined() ? residual.contiguous() : residual;
    return decode_linear_op::few_rows(rows, weights, activation, added).view(sizes);
  }
  const Tensor y =
      decode_linear_op::few_rows(rows, weights, activation, {}).to(x.scalar_type()).view(sizes);
  return residual.defined() ? y + residual : y;
}

QuantizedRows quantize_rows(const Tensor& weight) {
  const at::NoGradGuard no_grad;
  const Arg arg{"quantize_rows", "weight", weight};
  check_rank(arg, 2, "[N, K]");
  TORCH_CHECK_VALUE(weight.numel() > 0 && weight.is_floating_point(), label(arg), " is ",
                    weight.scalar_type(), " ", weight.sizes(),
                    "; expected elements of a floating dtype");
  const int64_t outputs = weight.size(0);
  const int64_t block = std::max<int64_t>(decode_linear_op::kBlockElements / weight.size(1), 1);
  QuantizedRows result{at::empty(weight.sizes(), weight.options().dtype(at::kChar)),
                       at::empty({outputs}, weight.options().dtype(at::kFloat))};
  for (int64_t begin = 0; begin < outputs; begin += block) {
    const int64_t count = std::min(block, outputs - begin);
    const Tensor part = weight.narrow(0, begin, count).to(at::kFloat);
    const Tensor scales = part.abs().amax(1) / 127;
    const Tensor steps = at::where(scales > 0, scales, 1).unsqueeze(1);  // a row of zeros
    result.values.narrow(0, begin, count).copy_((part / steps).round_().clamp_(-127, 127));
    result.scales.narrow(0, begin, count).copy_(scales);
  }
  return result;
}

}  // namespace seqfuse::ops
