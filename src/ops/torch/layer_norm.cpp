#include "ops/kernels/layer_norm.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

class LayerNorm : public torch::autograd::Function<LayerNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_in,
                        const OptionalTensor& weight_in, const OptionalTensor& bias_in,
                        double eps) {
    const DeviceGuard guard(x_in);
    const Tensor x = with_unit_last_stride(x_in);
    const Tensor weight = contiguous_or_undefined(weight_in);
    const Tensor bias = contiguous_or_undefined(bias_in);
    const int64_t rows = x.size(0), dim = x.size(1);
    Tensor y = at::empty({rows, dim}, x.options());
    const auto stats = x.options().dtype(sum_type(x.scalar_type()));
    Tensor mean = at::empty({rows}, stats), rstd = at::empty({rows}, stats);
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
    context->save_for_backward({x, weight, mean, rstd});
    context->saved_data["has_bias"] = bias.defined();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const DeviceGuard guard(x);
    const Tensor dy = with_unit_last_stride(gradients[0]);
    const int64_t rows = x.size(0), dim = x.size(1);
    Tensor dx = at::empty({rows, dim}, x.options()), dweight, dbias;
    if (weight.defined() || context->saved_data["has_bias"].toBool()) {
      dweight = at::empty({dim}, x.options());
      dbias = at::empty({dim}, x.options());
    }
    LayerNormBackwardParams params{
        .x = x.const_data_ptr(),
        .weight = data_or_null(weight),
        .mean = saved[2].const_data_ptr(),
        .rstd = saved[3].const_data_ptr(),
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
    return {dx, weight.defined() ? dweight : Tensor(),
            context->saved_data["has_bias"].toBool() ? dbias : Tensor(), Tensor()};
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                  double eps) {
  check_arguments(x, weight, bias);
  return LayerNorm::apply(x, weight, bias, eps);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def("layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor",
              &seqfuse::ops::layer_norm);
}
