#include "ops/kernels/layer_norm.h"

#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
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

// Memory for the parts of dweight and dbias, which params point to.
Tensor make_workspace([[maybe_unused]] LayerNormBackwardParams& params,
                      [[maybe_unused]] const Tensor& x) {
#ifdef SEQFUSE_HAS_CUDA
  if (x.is_cuda() && params.dweight) {
    const int64_t partials = layer_norm_backward_partials(params.rows, params.dim);
    const Tensor workspace = at::empty({partials, 2, params.dim}, x.options().dtype(at::kFloat));
    params.workspace = workspace.mutable_data_ptr<float>();
    return workspace;
  }
#endif
  return {};
}

// The result, mean and reciprocal deviation of each row.
std::tuple<Tensor, Tensor, Tensor> run_forward(const Tensor& x_in, const OptionalTensor& weight_in,
                                               const OptionalTensor& bias_in, double eps) {
  check_arguments(x_in, weight_in, bias_in);
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
  const auto statistic = [&] { return at::empty_symint({x.sym_size(0)}, sum_options(x)); };
  return {empty_like_shape(x), statistic(), statistic()};
}

// dweight and dbias are undefined where there is no weight and no bias.
std::tuple<Tensor, Tensor, Tensor> run_backward(const Tensor& dy_in, const Tensor& x_in,
                                                const OptionalTensor& weight_in, const Tensor& mean,
                                                const Tensor& rstd, bool has_bias) {
  const DeviceGuard guard(x_in);
  const Tensor x = with_unit_last_stride(x_in), dy = with_unit_last_stride(dy_in);
  const Tensor weight = contiguous_or_undefined(weight_in);
  const int64_t rows = x.size(0), dim = x.size(1);
  Tensor dx = at::empty({rows, dim}, x.options()), dweight, dbias;
  if (weight.defined() || has_bias) {
    dweight = at::empty({dim}, x.options());
    dbias = at::empty({dim}, x.options());
  }
  LayerNormBackwardParams params{
      .x = x.const_data_ptr(),
      .weight = data_or_null(weight),
      .mean = mean.const_data_ptr(),
      .rstd = rstd.const_data_ptr(),
      .dy = dy.const_data_ptr(),
      .dx = dx.mutable_data_ptr(),
      .dweight = dweight.defined() ? dweight.mutable_data_ptr() : nullptr,
      .dbias = dbias.defined() ? dbias.mutable_data_ptr() : nullptr,
      .workspace = nullptr,
      .rows = rows,
      .dim = dim,
      .x_stride = x.stride(0),
      .dy_stride = dy.stride(0),
      .dx_stride = dim};
  const Tensor workspace = make_workspace(params, x);
  SEQFUSE_RUN(x, layer_norm_backward, params, dtype_of(x));
  return {dx, weight.defined() ? dweight : Tensor(), has_bias ? dbias : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> backward_shapes(const Tensor&, const Tensor& x,
                                                   const OptionalTensor& weight, const Tensor&,
                                                   const Tensor&, bool has_bias) {
  const auto columns = [&](bool present) {
    return present ? at::empty_symint({x.sym_size(1)}, x.options()) : Tensor();
  };
  return {empty_like_shape(x), columns(weight && weight->defined()), columns(has_bias)};
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
    context->save_for_backward({x, weight.value_or(Tensor()), mean, rstd});
    context->saved_data["has_bias"] = bias && bias->defined();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    const auto [dx, dweight, dbias] =
        op.call(gradients[0], saved[0], optional_of(saved[1]), saved[2], saved[3],
                context->saved_data["has_bias"].toBool());
    return {dx, dweight, dbias, Tensor()};
  }
};

Tensor with_gradient(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                     double eps) {
  return LayerNorm::apply(x, weight, bias, eps);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps) {
  static const auto op = find_operator<decltype(with_gradient)>("seqfuse::layer_norm");
  return op.call(x, weight, bias, eps);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
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
             "bool has_bias) -> (Tensor, Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
