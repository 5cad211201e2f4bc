#include "ops/kernels/norm/layer_norm_gate.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/device_seeds.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/norm/norm_backward.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace layer_norm_gate_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "seqfuse::layer_norm_gate_forward";
constexpr const char* kBackward = "seqfuse::layer_norm_gate_backward";

void check_arguments(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                     const OptionalTensor& bias, double dropout) {
  const Arg o_arg{"layer_norm_gate", "o", o}, u_arg{"layer_norm_gate", "u", u};
  check_rank(o_arg, 2, "[T, D]");
  TORCH_CHECK_VALUE(o.size(1) > 0, "layer_norm_gate: o is ", o.sizes(),
                    "; expected at least one column");
  check_float(o_arg);
  check_sizes(u_arg, o.sizes(), "the shape of o");
  check_like(u_arg, o_arg);
  check_affine(o_arg, weight, bias);
  check_dropout_probability("layer_norm_gate", dropout);
}

// The result, and mean and reciprocal deviation of each row of o.
std::tuple<Tensor, Tensor, Tensor> run_forward(const Tensor& o_in, const Tensor& u_in,
                                               const OptionalTensor& weight_in,
                                               const OptionalTensor& bias_in, double eps,
                                               double dropout, int64_t seed) {
  check_arguments(o_in, u_in, weight_in, bias_in, dropout);
  check_eps("layer_norm_gate", eps);
  const DeviceGuard guard(o_in);
  const Tensor o = with_unit_last_stride(o_in), u = with_unit_last_stride(u_in);
  const Tensor weight = contiguous_or_undefined(weight_in);
  const Tensor bias = contiguous_or_undefined(bias_in);
  const int64_t rows = o.size(0), dim = o.size(1);
  Tensor y = at::empty({rows, dim}, o.options());
  Tensor mean = at::empty({rows}, sum_options(o)), rstd = at::empty({rows}, sum_options(o));
  SEQFUSE_RUN(o, layer_norm_gate_forward,
              {.o = o.const_data_ptr(),
               .u = u.const_data_ptr(),
               .weight = data_or_null(weight),
               .bias = data_or_null(bias),
               .y = y.mutable_data_ptr(),
               .mean = mean.mutable_data_ptr(),
               .rstd = rstd.mutable_data_ptr(),
               .rows = rows,
               .dim = dim,
               .o_stride = o.stride(0),
               .u_stride = u.stride(0),
               .y_stride = dim,
               .eps = eps,
               .dropout = dropout,
               .seed = dropout > 0 ? kernel_seed(o, seed) : 0},
              dtype_of(o));
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> forward_shapes(const Tensor& o, const Tensor&,
                                                  const OptionalTensor&, const OptionalTensor&,
                                                  double, double, c10::SymInt) {
  const auto statistic = [&] { return empty_shape({o.sym_size(0)}, sum_options(o)); };
  return {empty_like_shape(o), statistic(), statistic()};
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// wanted: the gradients of weight and bias; undefined if not wanted.
Gradients run_backward(const Tensor& dy_in, const Tensor& o_in, const Tensor& u_in,
                       const OptionalTensor& weight_in, const OptionalTensor& bias_in,
                       const Tensor& mean, const Tensor& rstd, double dropout, int64_t seed,
                       std::array<bool, 2> wanted) {
  const DeviceGuard guard(o_in);
  const Tensor o = with_unit_last_stride(o_in), u = with_unit_last_stride(u_in);
  const Tensor dy = with_unit_last_stride(dy_in);
  const Tensor weight = contiguous_or_undefined(weight_in);
  const Tensor bias = contiguous_or_undefined(bias_in);
  Tensor d_o = at::empty(o.sizes(), o.options()), du = at::empty(o.sizes(), o.options());
  LayerNormGateBackwardParams params =
      layer_norm_gate_backward_params(o, u, weight, bias, mean, rstd, dy, d_o, du, dropout, seed);
  AffineGradients affine(o, wanted, o.scalar_type());
  affine.attach_to(params);
  SEQFUSE_RUN(o, layer_norm_gate_backward, params, dtype_of(o));
  return {d_o, du, affine.weight(), affine.bias()};
}

Gradients backward_shapes(const Tensor&, const Tensor& o, const Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const Tensor&, const Tensor&, double, c10::SymInt,
                          std::array<bool, 2> wanted) {
  return {empty_like_shape(o), empty_like_shape(o), affine_gradient_shape(o, wanted[0]),
          affine_gradient_shape(o, wanted[1])};
}

Tensor without_gradient(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                        const OptionalTensor& bias, double eps, double dropout, c10::SymInt seed) {
  static const auto forward = find_operator<decltype(forward_shapes)>(kForward);
  return std::get<0>(forward.call(o, u, weight, bias, eps, dropout, seed));
}

class LayerNormGate : public torch::autograd::Function<LayerNormGate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& o, const Tensor& u,
                        const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                        double dropout, c10::SymInt seed) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [y, mean, rstd] = op.call(o, u, weight, bias, eps, dropout, seed);
    context->save_for_backward(
        {o, u, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, rstd});
    context->saved_data["dropout"] = dropout;
    context->saved_data["seed"] = seed;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    const auto wanted = wanted_gradients<4>(context, {saved[0], saved[1], saved[2], saved[3]});
    const auto [d_o, du, dweight, dbias] =
        op.call(gradients[0], saved[0], saved[1], optional_of(saved[2]), optional_of(saved[3]),
                saved[4], saved[5], context->saved_data["dropout"].toDouble(),
                context->saved_data["seed"].toSymInt(), {wanted[2], wanted[3]});
    return {d_o, du, dweight, dbias, Tensor(), Tensor(), Tensor()};
  }
};

Tensor with_gradient(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                     const OptionalTensor& bias, double eps, double dropout, c10::SymInt seed) {
  return LayerNormGate::apply(o, u, weight, bias, eps, dropout, seed);
}

}  // namespace
}  // namespace layer_norm_gate_op

Tensor layer_norm_gate(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps, double dropout, c10::SymInt seed) {
  static const auto op =
      find_operator<decltype(layer_norm_gate_op::with_gradient)>("seqfuse::layer_norm_gate");
  return op.call(o, u, weight, bias, eps, dropout, seed);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace layer_norm_gate_op;
  Definition(library,
             "layer_norm_gate(Tensor o, Tensor u, Tensor? weight, Tensor? bias, float eps, "
             "float dropout, SymInt seed) -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library,
             "layer_norm_gate_forward(Tensor o, Tensor u, Tensor? weight, Tensor? bias, float eps, "
             "float dropout, SymInt seed) -> (Tensor, Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(
      library,
      "layer_norm_gate_backward(Tensor dy, Tensor o, Tensor u, Tensor? weight, Tensor? bias, "
      "Tensor mean, Tensor rstd, float dropout, SymInt seed, bool[2] wanted) -> "
      "(Tensor, Tensor, Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
