#include "ops/kernels/norm/layer_norm.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/norm/norm_backward.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace layer_norm_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "seqfuse::layer_norm_forward";
constexpr const char* kBackward = "seqfuse::layer_norm_backward";

void check_arguments(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias) {
  const Arg x_arg{"layer_norm", "x", x};
  check_rank(x_arg, 2, "[T, D]");
  TORCH_CHECK_VALUE(x.size(1) > 0, "layer_norm: x is ", x.sizes(),
                    "; expected at least one column");
  check_float(x_arg);
  check_affine(x_arg, weight, bias);
}

// The result, and mean and reciprocal deviation of each row.
std::tuple<Tensor, Tensor, Tensor> run_forward(const Tensor& x_in, const OptionalTensor& weight_in,
                                               const OptionalTensor& bias_in, double eps) {
  check_arguments(x_in, weight_in, bias_in);
  check_eps("layer_norm", eps);
  const DeviceGuard guard(x_in);
  const Tensor x = with_unit_last_stride(x_in);
  const Tensor weight = contiguous_or_undefined(weight_in);
  const Tensor bias = contiguous_or_undefined(bias_in);
  const int64_t rows = x.size(0), dim = x.size(1);
  Tensor y = at::empty({rows, dim}, x.options());
  Tensor mean = at::empty({rows}, sum_options(x)), rstd = at::empty({rows}, sum_options(x));
  SEQFUSE_RUN(x, layer_norm_forward,
              {.x = x.const_data_ptr(),
               .weight = data_or_null(weight),
               .bias = data_or_null(bias),
               .y = y.mutable_data_ptr(),
               .mean = mean.mutable_data_ptr(),
               .rstd = rstd.mutable_data_ptr(),
               .rows = rows,
               .dim = dim,
               .x_stride = x.stride(0),
               .y_stride = dim,
               .eps = eps},
              dtype_of(x));
  return {y, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> forward_shapes(const Tensor& x, const OptionalTensor&,
                                                  const OptionalTensor&, double) {
  const auto statistic = [&] { return empty_shape({x.sym_size(0)}, sum_options(x)); };
  return {empty_like_shape(x), statistic(), statistic()};
}

// wanted: the gradients of weight and bias; undefined if not wanted.
std::tuple<Tensor, Tensor, Tensor> run_backward(const Tensor& dy_in, const Tensor& x_in,
                                                const OptionalTensor& weight_in, const Tensor& mean,
                                                const Tensor& rstd, std::array<bool, 2> wanted) {
  const DeviceGuard guard(x_in);
  const Tensor x = with_unit_last_stride(x_in), dy = with_unit_last_stride(dy_in);
  const Tensor weight = contiguous_or_undefined(weight_in);
  Tensor dx = at::empty(x.sizes(), x.options());
  LayerNormBackwardParams params = layer_norm_backward_params(x, weight, mean, rstd, dy, dx);
  AffineGradients affine(x, wanted, x.scalar_type());
  affine.attach_to(params);
  SEQFUSE_RUN(x, layer_norm_backward, params, dtype_of(x));
  return {dx, affine.weight(), affine.bias()};
}

std::tuple<Tensor, Tensor, Tensor> backward_shapes(const Tensor&, const Tensor& x,
                                                   const OptionalTensor&, const Tensor&,
                                                   const Tensor&, std::array<bool, 2> wanted) {
  return {empty_like_shape(x), affine_gradient_shape(x, wanted[0]),
          affine_gradient_shape(x, wanted[1])};
}

Tensor without_gradient(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                        double eps) {
  static const auto forward = find_operator<decltype(forward_shapes)>(kForward);
  return std::get<0>(forward.call(x, weight, bias, eps));
}

class LayerNorm : public torch::autograd::Function<LayerNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const OptionalTensor& weight,
                        const OptionalTensor& bias, double eps) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [y, mean, rstd] = op.call(x, weight, bias, eps);
    context->save_for_backward({x, weight.value_or(Tensor()), bias.value_or(Tensor()), mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    const auto wanted = wanted_gradients<3>(context, {saved[0], saved[1], saved[2]});
    const auto [dx, dweight, dbias] = op.call(gradients[0], saved[0], optional_of(saved[1]),
                                              saved[3], saved[4], {wanted[1], wanted[2]});
    return {dx, dweight, dbias, Tensor()};
  }
};

Tensor with_gradient(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                     double eps) {
  return LayerNorm::apply(x, weight, bias, eps);
}

}  // namespace
}  // namespace layer_norm_op

Tensor layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps) {
  static const auto op =
      find_operator<decltype(layer_norm_op::with_gradient)>("seqfuse::layer_norm");
  return op.call(x, weight, bias, eps);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace layer_norm_op;
  Definition(library, "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library,
             "layer_norm_forward(Tensor x, Tensor? weight, Tensor? bias, float eps) -> "
             "(Tensor, Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(library,
             "layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor mean, Tensor rstd, "
             "bool[2] wanted) -> (Tensor, Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
