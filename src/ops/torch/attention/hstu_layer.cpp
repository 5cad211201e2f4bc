// A whole HSTU layer: fused for 16 bits on a GPU (hstu_layer_fused.cpp), else composed of the other
// operators.
#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/kernels/attention/hstu_attention.h"
#include "ops/torch/attention/hstu_layer_arguments.h"
#include "ops/torch/checks.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace hstu_layer_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "hstu_layer";

bool is_there(const OptionalTensor& weight) {
  return weight && weight->defined();
}
OptionalTensor optional_like(const OptionalTensor& weight, const Tensor& x) {
  return is_there(weight) ? OptionalTensor(weight->to(x.scalar_type())) : std::nullopt;
}

// Sizes may be symbolic.
void check_arguments(const LayerArguments& a) {
  const Tensor& x = a.x;
  const HstuLayerWeights& weights = a.weights;
  check_rank({kOp, "x", x}, 2, "[T, D]");
  check_rank({kOp, "uvqk weight", weights.uvqk}, 2, "[D, 4 H d]");
  check_rank({kOp, "output weight", weights.output}, 2, "[H d, D]");
  const c10::SymInt width = x.sym_size(1), inner = weights.output.sym_size(0);
  const int64_t heads = a.options.heads;
  TORCH_CHECK_VALUE(heads > 0 && inner > 0 && inner % heads == 0, kOp, ": output weight is ",
                    weights.output.sym_sizes(), " for ", heads,
                    " heads; expected rows that divide into them");
  TORCH_CHECK_VALUE(width == weights.uvqk.sym_size(0), kOp, ": x is ", x.sym_sizes(),
                    "; expected [T, ", weights.uvqk.sym_size(0), "], as many columns as uvqk ",
                    "weight has rows");
  const auto check = [&](const char* name, const OptionalTensor& weight,
                         c10::SymIntArrayRef sizes) {
    if (!is_there(weight)) return;
    const Arg arg{kOp, name, *weight};
    TORCH_CHECK_VALUE(weight->sym_sizes() == sizes, label(arg), " is ", weight->sym_sizes(),
                      "; expected ", sizes, " (x and the output weight)");
    check_on(arg, x.device());
    TORCH_CHECK_VALUE(weight->is_floating_point(), label(arg), " is ", weight->scalar_type(),
                      "; expected a floating dtype");
  };
  check("input norm weight", weights.input_norm_weight, {width});
  check("input norm bias", weights.input_norm_bias, {width});
  check("uvqk weight", weights.uvqk, {width, inner * 4});
  check("uvqk bias", weights.uvqk_bias, {inner * 4});
  check("output norm weight", weights.output_norm_weight, {inner});
  check("output norm bias", weights.output_norm_bias, {inner});
  check("output weight", weights.output, {inner, width});
  check("output bias", weights.output_bias, {width});
  check_dropout_probability(kOp, a.options.dropout);
}

}  // namespace
}  // namespace hstu_layer_op

Tensor layer_of_operators(const LayerArguments& a, decltype(&hstu_attention) attention) {
  // Computes in x's dtype, whatever autocast would choose.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Tensor& x = a.x;
  const HstuLayerWeights& weights = a.weights;
  const HstuLayerOptions& options = a.options;
  const Tensor normed =
      layer_norm(x, hstu_layer_op::optional_like(weights.input_norm_weight, x),
                 hstu_layer_op::optional_like(weights.input_norm_bias, x), options.eps);
  const Tensor uvqk_weight = weights.uvqk.to(x.scalar_type());
  const OptionalTensor uvqk_bias = hstu_layer_op::optional_like(weights.uvqk_bias, x);
  const Tensor uvqk = at::silu(uvqk_bias ? at::addmm(*uvqk_bias, normed, uvqk_weight)
                                         : at::mm(normed, uvqk_weight));
  const LayerParts parts(uvqk, options.heads);
  HstuAttentionOptions of_attention = options.attention;
  if (!x.is_cuda()) {
    for (OptionalTensor* bias : {&of_attention.position_bias, &of_attention.time_bias})
      *bias = hstu_layer_op::optional_like(*bias, x);
  }
  const Tensor attended = attention(parts.q, parts.k, parts.v, a.offsets, a.offsets, of_attention);
  const Tensor gated = layer_norm_gate(attended.flatten(1), parts.u,
                                       hstu_layer_op::optional_like(weights.output_norm_weight, x),
                                       hstu_layer_op::optional_like(weights.output_norm_bias, x),
                                       options.eps, options.dropout, options.seed);
  Tensor out = at::addmm(x, gated, weights.output.to(x.scalar_type()));
  return hstu_layer_op::is_there(weights.output_bias) ? out.add_(*weights.output_bias) : out;
}

namespace hstu_layer_op {
namespace {

#ifdef SEQFUSE_HAS_CUDA
// Decides only by properties that are known while tracing.
bool is_fused(const LayerArguments& a) {
  return a.x.is_cuda() &&
         hstu_attention_cuda_takes(a.offsets.sym_numel() - 1,
                                   a.weights.output.sym_size(0) / a.options.heads, dtype_of(a.x));
}

// Converts arguments to the fused passes' dtype. Small weights are converted together by one
// kernel, which would be slow for large ones.
LayerArguments in_dtype_of_x(LayerArguments a) {
  a.x = a.x.contiguous();
  HstuLayerWeights& w = a.weights;
  std::vector<Tensor> from, to;
  const auto convert = [&](Tensor& weight) {
    weight = weight.contiguous();
    if (weight.scalar_type() == a.x.scalar_type()) return;
    constexpr int64_t kLarge = 1 << 18;
    if (weight.sym_numel().maybe_as_int().value_or(0) >= kLarge) {  // 0: shapes are traced
      weight = weight.to(a.x.scalar_type());
      return;
    }
    from.push_back(weight);
    to.push_back(at::empty_like(weight, a.x.options()));
    weight = to.back();
  };
  convert(w.uvqk);
  convert(w.output);
  for (OptionalTensor* weight : {&w.input_norm_weight, &w.input_norm_bias, &w.uvqk_bias,
                                 &w.output_norm_weight, &w.output_norm_bias, &w.output_bias})
    if (is_there(*weight)) convert(**weight);
  if (!to.empty()) at::_foreach_copy_(to, from);
  return a;
}

FusedResult run_fused(const LayerArguments& in_dtype) {
  static const auto op = find_operator<FusedForward>("seqfuse::hstu_layer_forward");
  return call_with(op, in_dtype);
}

class HstuLayer : public torch::autograd::Function<HstuLayer> {
 public:
  // Tensors with gradients are separate arguments, in the order of LayerGradient; given also
  // contains them.
  static Tensor forward(AutogradContext* context, const Tensor&, const OptionalTensor&,
                        const OptionalTensor&, const Tensor&, const OptionalTensor&,
                        const OptionalTensor&, const OptionalTensor&, const Tensor&,
                        const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                        const LayerArguments& given) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const LayerArguments a = in_dtype_of_x(given);
    const FusedResult result = run_fused(a);
    const HstuLayerWeights& w = a.weights;
    const auto tensor = [](const OptionalTensor& weight) { return weight.value_or(Tensor()); };
    variable_list saved{a.x,
                        tensor(w.input_norm_weight),
                        tensor(w.input_norm_bias),
                        w.uvqk,
                        tensor(w.uvqk_bias),
                        tensor(w.output_norm_weight),
                        tensor(w.output_norm_bias),
                        w.output,
                        tensor(w.output_bias)};
    for (const Tensor& t : tensors_of(a.options.attention)) saved.push_back(t);
    saved.push_back(a.offsets);
    std::apply([&](const Tensor&, const auto&... kept) { (saved.push_back(kept), ...); }, result);
    context->save_for_backward(std::move(saved));
    save_options(context, a.options.attention);
    context->saved_data["heads"] = a.options.heads;
    context->saved_data["eps"] = a.options.eps;
    context->saved_data["dropout"] = a.options.dropout;
    context->saved_data["seed"] = a.options.seed;
    return std::get<0>(result);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<FusedBackward>("seqfuse::hstu_layer_backward");
    const auto t = context->get_saved_variables();
    auto& data = context->saved_data;
    const LayerArguments a{
        .x = t[kX],
        .weights = {.input_norm_weight = optional_of(t[kInputNormWeight]),
                    .input_norm_bias = optional_of(t[kInputNormBias]),
                    .uvqk = t[kUvqkWeight],
                    .uvqk_bias = optional_of(t[kUvqkBias]),
                    .output_norm_weight = optional_of(t[kOutputNormWeight]),
                    .output_norm_bias = optional_of(t[kOutputNormBias]),
                    .output = t[kOutputWeight],
                    .output_bias = optional_of(t[kOutputBias])},
        .offsets = t[kPositionBias + kAttentionTensors],
        .options = {.heads = data["heads"].toInt(),
                    .eps = data["eps"].toDouble(),
                    .dropout = data["dropout"].toDouble(),
                    .seed = data["seed"].toSymInt(),
                    .attention = saved_options(context, std::span(t).subspan(kPositionBias))}};
    std::array<Tensor, kLayerGradients> variables;
    std::copy_n(t.begin(), variables.size(), variables.begin());
    const size_t kept = kPositionBias + kAttentionTensors + 1;
    const FusedGradients d =
        call_with(op, a, gradients[0], wanted_gradients(context, variables), t[kept], t[kept + 1],
                  optional_of(t[kept + 2]), t[kept + 3], optional_of(t[kept + 4]), t[kept + 5],
                  t[kept + 6], t[kept + 7], t[kept + 8]);
    return std::apply([](const auto&... gradient) { return variable_list{gradient..., Tensor()}; },
                      d);
  }
};
#endif

template <class... Values>
Tensor without_gradient(Values... values) {
  const LayerArguments a = layer_arguments(values...);
  check_arguments(a);
#ifdef SEQFUSE_HAS_CUDA
  if (is_fused(a)) return std::get<0>(run_fused(in_dtype_of_x(a)));
#endif
  return layer_of_operators(a);
}

template <class... Values>
Tensor with_gradient(Values... values) {
  const LayerArguments a = layer_arguments(values...);
  check_arguments(a);
#ifdef SEQFUSE_HAS_CUDA
  const HstuLayerWeights& w = a.weights;
  if (is_fused(a))
    return HstuLayer::apply(a.x, w.input_norm_weight, w.input_norm_bias, w.uvqk, w.uvqk_bias,
                            w.output_norm_weight, w.output_norm_bias, w.output, w.output_bias,
                            a.options.attention.position_bias, a.options.attention.time_bias, a);
#endif
  return layer_of_operators(a);
}

using Layer = LayerSignature<Tensor>;

}  // namespace
}  // namespace hstu_layer_op

Tensor hstu_layer(const Tensor& x, const HstuLayerWeights& weights, const Tensor& offsets,
                  const HstuLayerOptions& options) {
  static const auto op = find_operator<hstu_layer_op::Layer>("seqfuse::hstu_layer");
  return call_with(op, LayerArguments{x, weights, offsets, options});
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace hstu_layer_op;
  Layer* const below_autograd = &without_gradient;
  Layer* const autograd = &with_gradient;
  Definition(library, "hstu_layer(" + layer_schema() + ") -> Tensor")
      .made_of_others(below_autograd)
      .autograd(autograd);
}

}  // namespace seqfuse::ops
