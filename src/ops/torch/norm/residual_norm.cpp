#include "ops/kernels/norm/residual_norm.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace residual_norm_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// sum (empty if not wanted), y, y2 (empty if not wanted), mean, rstd.
using Outputs = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// The internal operators that this file's public ones call. The first takes their name for
// messages.
constexpr const char* kForward = "seqfuse::residual_norm_forward";
constexpr const char* kNormBackward = "seqfuse::layer_norm_backward";

void check_like_x(const Arg& arg, const Arg& x) {
  check_sizes(arg, x.tensor.sizes(), "like x");
  check_like(arg, x);
}

void check_arguments(const char* op, at::TensorList terms, const OptionalTensor& residual,
                     const OptionalTensor& weight, const OptionalTensor& bias,
                     const OptionalTensor& weight2, const OptionalTensor& bias2) {
  const Arg x{op, "x", terms[0]};
  check_rank(x, 2, "[T, D]");
  TORCH_CHECK_VALUE(terms[0].size(1) > 0, op, ": x is ", terms[0].sizes(),
                    "; expected at least one column");
  check_float(x);
  for (size_t i = 1; i < terms.size(); ++i)
    check_like_x({op, i == 1 ? "the second term" : "the third term", terms[i]}, x);
  if (residual && residual->defined()) check_like_x({op, "residual", *residual}, x);
  check_affine(x, weight, bias);
  check_affine(x, weight2, bias2);
}

Outputs run_forward(c10::string_view op, at::TensorList terms_in, const OptionalTensor& residual_in,
                    const OptionalTensor& weight_in, const OptionalTensor& bias_in,
                    const OptionalTensor& weight2_in, const OptionalTensor& bias2_in,
                    bool second_norm, bool want_sum, double eps) {
  const std::string name(op);
  check_arguments(name.c_str(), terms_in, residual_in, weight_in, bias_in, weight2_in, bias2_in);
  check_eps(name.c_str(), eps);
  const DeviceGuard guard(terms_in[0]);
  std::vector<Tensor> terms;
  for (const Tensor& term : terms_in) terms.push_back(with_unit_last_stride(term));
  const Tensor& x = terms[0];
  const Tensor residual =
      residual_in && residual_in->defined() ? with_unit_last_stride(*residual_in) : Tensor();
  const Tensor weight = contiguous_or_undefined(weight_in), bias = contiguous_or_undefined(bias_in);
  const Tensor weight2 = contiguous_or_undefined(weight2_in),
               bias2 = contiguous_or_undefined(bias2_in);
  const int64_t rows = x.size(0), dim = x.size(1);
  const auto output = [&](bool wanted) { return at::empty({wanted ? rows : 0, dim}, x.options()); };
  Tensor sum = output(want_sum), y = output(true), y2 = output(second_norm);
  Tensor mean = at::empty({rows}, sum_options(x)), rstd = at::empty({rows}, sum_options(x));
  ResidualNormParams params{.x = x.const_data_ptr(),
                            .sum = want_sum ? sum.mutable_data_ptr() : nullptr,
                            .weight = data_or_null(weight),
                            .bias = data_or_null(bias),
                            .residual = data_or_null(residual),
                            .y = y.mutable_data_ptr(),
                            .weight2 = data_or_null(weight2),
                            .bias2 = data_or_null(bias2),
                            .y2 = second_norm ? y2.mutable_data_ptr() : nullptr,
                            .mean = mean.mutable_data_ptr(),
                            .rstd = rstd.mutable_data_ptr(),
                            .rows = rows,
                            .dim = dim,
                            .x_stride = x.stride(0),
                            .residual_stride = residual.defined() ? residual.stride(0) : 0,
                            .eps = eps};
  if (terms.size() > 1) {
    params.a = terms[1].const_data_ptr();
    params.a_stride = terms[1].stride(0);
  }
  if (terms.size() > 2) {
    params.b = terms[2].const_data_ptr();
    params.b_stride = terms[2].stride(0);
  }
  SEQFUSE_RUN(x, residual_norm_forward, params, dtype_of(x));
  return {sum, y, y2, mean, rstd};
}

Outputs forward_shapes(c10::string_view, at::TensorList terms, const OptionalTensor&,
                       const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                       const OptionalTensor&, bool second_norm, bool want_sum, double) {
  const Tensor& x = terms[0];
  const auto output = [&](bool wanted) {
    return wanted ? empty_like_shape(x) : empty_shape({0, x.sym_size(1)}, x.options());
  };
  const auto statistic = [&] { return empty_shape({x.sym_size(0)}, sum_options(x)); };
  return {output(want_sum), output(true), output(second_norm), statistic(), statistic()};
}

// The inputs of one call, as its public operator got them.
struct Call {
  const char* op;
  std::vector<Tensor> terms;
  OptionalTensor residual, weight, bias, weight2, bias2;
  bool second_norm = false, want_sum = false;
  double eps = 0;

  Outputs run() const {
    static const auto forward = find_operator<decltype(forward_shapes)>(kForward);
    return forward.call(op, terms, residual, weight, bias, weight2, bias2, second_norm, want_sum,
                        eps);
  }

  // The outputs that were asked for.
  variable_list wanted(const Outputs& outputs) const {
    variable_list result;
    if (want_sum) result.push_back(std::get<0>(outputs));
    result.push_back(std::get<1>(outputs));
    if (second_norm) result.push_back(std::get<2>(outputs));
    return result;
  }
};

class ResidualNorm : public torch::autograd::Function<ResidualNorm> {
 public:
  // The tensors of call are passed separately, since autograd tracks only those.
  static variable_list forward(AutogradContext* context, const Tensor& x, const OptionalTensor& a,
                               const OptionalTensor& b, const OptionalTensor& residual,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const OptionalTensor& weight2, const OptionalTensor& bias2,
                               const Call& call) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Outputs outputs = call.run();
    // Statistics and normalised values depend on the sum only: x itself if there is one term.
    const Tensor s = call.want_sum ? std::get<0>(outputs) : x;
    context->save_for_backward({s, weight.value_or(Tensor()), weight2.value_or(Tensor()),
                                std::get<3>(outputs), std::get<4>(outputs)});
    context->saved_data["second_norm"] = call.second_norm;
    context->saved_data["want_sum"] = call.want_sum;
    const auto given = [](const OptionalTensor& t) { return t && t->defined(); };
    // Which variables have an edge in the graph, and its index.
    for (const auto& [name, there] : {std::pair{"a", given(a)},
                                      {"b", given(b)},
                                      {"residual", given(residual)},
                                      {"weight", given(weight)},
                                      {"bias", given(bias)},
                                      {"weight2", given(weight2)},
                                      {"bias2", given(bias2)}})
      context->saved_data[name] = there;
    return call.wanted(outputs);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto norm = find_operator<std::tuple<Tensor, Tensor, Tensor>(
        const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&, const Tensor&,
        std::array<bool, 2>)>(kNormBackward);
    const auto saved = context->get_saved_variables();
    const bool want_sum = context->saved_data["want_sum"].toBool();
    const Tensor dsum = want_sum ? gradients[0] : Tensor();
    size_t edge = 0;
    const auto wants = [&](const char* name) {
      return context->saved_data[name].toBool() && context->needs_input_grad(edge++);
    };
    const bool wants_x = context->needs_input_grad(edge++);
    const bool wants_a = wants("a"), wants_b = wants("b"), wants_residual = wants("residual");
    const bool wants_weight = wants("weight"), wants_bias = wants("bias");
    const bool wants_weight2 = wants("weight2"), wants_bias2 = wants("bias2");

    const Tensor& dy = gradients[want_sum];
    Tensor ds = dsum, dweight, dbias, dweight2, dbias2;
    const auto add = [&](const Tensor& gradient) { ds = ds.defined() ? ds + gradient : gradient; };
    if (dy.defined()) {
      Tensor dx;
      std::tie(dx, dweight, dbias) = norm.call(dy, saved[0], optional_of(saved[1]), saved[3],
                                               saved[4], {wants_weight, wants_bias});
      add(dx);
    }
    if (context->saved_data["second_norm"].toBool() && gradients[want_sum + 1].defined()) {
      Tensor dx;
      std::tie(dx, dweight2, dbias2) =
          norm.call(gradients[want_sum + 1], saved[0], optional_of(saved[2]), saved[3], saved[4],
                    {wants_weight2, wants_bias2});
      add(dx);
    }
    const auto of_term = [&](bool wanted) { return wanted ? ds : Tensor(); };
    return {of_term(wants_x), of_term(wants_a),
            of_term(wants_b), wants_residual ? dy : Tensor(),
            dweight,          dbias,
            dweight2,         dbias2,
            Tensor()};
  }
};

variable_list apply(const Call& call) {
  const auto term = [&](size_t i) {
    return i < call.terms.size() ? OptionalTensor(call.terms[i]) : std::nullopt;
  };
  return ResidualNorm::apply(call.terms[0], term(1), term(2), call.residual, call.weight, call.bias,
                             call.weight2, call.bias2, call);
}

// Registers each public operator twice: with autograd, and below it.
template <bool Gradient>
variable_list outputs_of(const Call& call) {
  TORCH_CHECK_VALUE(!call.terms.empty() && call.terms.size() <= 3, call.op, ": terms has ",
                    call.terms.size(), " tensors; expected 1 to 3");
  if constexpr (Gradient) return apply(call);
  return call.wanted(call.run());
}

template <bool Gradient>
Tensor layer_norm_residual_op(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                              const OptionalTensor& bias, double eps) {
  return outputs_of<Gradient>({.op = "layer_norm_residual",
                               .terms = {x},
                               .residual = residual,
                               .weight = weight,
                               .bias = bias,
                               .eps = eps})[0];
}

template <bool Gradient>
std::tuple<Tensor, Tensor> add_layer_norm_op(at::TensorList terms, const OptionalTensor& weight,
                                             const OptionalTensor& bias, double eps) {
  const auto outputs = outputs_of<Gradient>({.op = "add_layer_norm",
                                             .terms = terms.vec(),
                                             .weight = weight,
                                             .bias = bias,
                                             .want_sum = true,
                                             .eps = eps});
  return {outputs[0], outputs[1]};
}

template <bool Gradient>
std::tuple<Tensor, Tensor> dual_layer_norm_op(const Tensor& x, const OptionalTensor& weight,
                                              const OptionalTensor& bias,
                                              const OptionalTensor& weight2,
                                              const OptionalTensor& bias2, double eps) {
  const auto outputs = outputs_of<Gradient>({.op = "dual_layer_norm",
                                             .terms = {x},
                                             .weight = weight,
                                             .bias = bias,
                                             .weight2 = weight2,
                                             .bias2 = bias2,
                                             .second_norm = true,
                                             .eps = eps});
  return {outputs[0], outputs[1]};
}

template <bool Gradient>
std::tuple<Tensor, Tensor, Tensor> add_dual_layer_norm_op(at::TensorList terms,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          const OptionalTensor& weight2,
                                                          const OptionalTensor& bias2, double eps) {
  const auto outputs = outputs_of<Gradient>({.op = "add_dual_layer_norm",
                                             .terms = terms.vec(),
                                             .weight = weight,
                                             .bias = bias,
                                             .weight2 = weight2,
                                             .bias2 = bias2,
                                             .second_norm = true,
                                             .want_sum = true,
                                             .eps = eps});
  return {outputs[0], outputs[1], outputs[2]};
}

}  // namespace
}  // namespace residual_norm_op

Tensor layer_norm_residual(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                           const OptionalTensor& bias, double eps) {
  static const auto op = find_operator<decltype(residual_norm_op::layer_norm_residual_op<true>)>(
      "seqfuse::layer_norm_residual");
  return op.call(x, residual, weight, bias, eps);
}

std::tuple<Tensor, Tensor> add_layer_norm(at::TensorList terms, const OptionalTensor& weight,
                                          const OptionalTensor& bias, double eps) {
  static const auto op =
      find_operator<decltype(residual_norm_op::add_layer_norm_op<true>)>("seqfuse::add_layer_norm");
  return op.call(terms, weight, bias, eps);
}

std::tuple<Tensor, Tensor> dual_layer_norm(const Tensor& x, const OptionalTensor& weight,
                                           const OptionalTensor& bias,
                                           const OptionalTensor& weight2,
                                           const OptionalTensor& bias2, double eps) {
  static const auto op = find_operator<decltype(residual_norm_op::dual_layer_norm_op<true>)>(
      "seqfuse::dual_layer_norm");
  return op.call(x, weight, bias, weight2, bias2, eps);
}

std::tuple<Tensor, Tensor, Tensor> add_dual_layer_norm(at::TensorList terms,
                                                       const OptionalTensor& weight,
                                                       const OptionalTensor& bias,
                                                       const OptionalTensor& weight2,
                                                       const OptionalTensor& bias2, double eps) {
  static const auto op = find_operator<decltype(residual_norm_op::add_dual_layer_norm_op<true>)>(
      "seqfuse::add_dual_layer_norm");
  return op.call(terms, weight, bias, weight2, bias2, eps);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace residual_norm_op;
  Definition(library,
             "layer_norm_residual(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, "
             "float eps) -> Tensor")
      .made_of_others(&layer_norm_residual_op<false>)
      .autograd(&layer_norm_residual_op<true>);
  Definition(library,
             "add_layer_norm(Tensor[] terms, Tensor? weight, Tensor? bias, float eps) -> "
             "(Tensor, Tensor)")
      .made_of_others(&add_layer_norm_op<false>)
      .autograd(&add_layer_norm_op<true>);
  Definition(library,
             "dual_layer_norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? weight2, "
             "Tensor? bias2, float eps) -> (Tensor, Tensor)")
      .made_of_others(&dual_layer_norm_op<false>)
      .autograd(&dual_layer_norm_op<true>);
  Definition(library,
             "add_dual_layer_norm(Tensor[] terms, Tensor? weight, Tensor? bias, Tensor? weight2, "
             "Tensor? bias2, float eps) -> (Tensor, Tensor, Tensor)")
      .made_of_others(&add_dual_layer_norm_op<false>)
      .autograd(&add_dual_layer_norm_op<true>);
  Definition(library,
             "residual_norm_forward(str op, Tensor[] terms, Tensor? residual, Tensor? weight, "
             "Tensor? bias, Tensor? weight2, Tensor? bias2, bool second_norm, bool want_sum, "
             "float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
