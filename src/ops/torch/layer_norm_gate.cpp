#include "ops/kernels/layer_norm_gate.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// Memory for the parts of dweight and dbias, which params point to.
Tensor make_workspace([[maybe_unused]] LayerNormGateBackwardParams& params,
                      [[maybe_unused]] const Tensor& o) {
#ifdef SEQFUSE_HAS_CUDA
  if (o.is_cuda() && params.dweight) {
    const int64_t partials = layer_norm_gate_backward_partials(params.rows, params.dim);
    const Tensor workspace = at::empty({partials, 2, params.dim}, o.options().dtype(at::kFloat));
    params.workspace = workspace.mutable_data_ptr<float>();
    return workspace;
  }
#endif
  return {};
}

class LayerNormGate : public torch::autograd::Function<LayerNormGate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& o_in, const Tensor& u_in,
                        const OptionalTensor& weight_in, const OptionalTensor& bias_in, double eps,
                        double dropout, int64_t seed) {
    const DeviceGuard guard(o_in);
    const Tensor o = with_unit_last_stride(o_in), u = with_unit_last_stride(u_in);
    const Tensor weight = contiguous_or_undefined(weight_in);
    const Tensor bias = contiguous_or_undefined(bias_in);
    const int64_t rows = o.size(0), dim = o.size(1);
    Tensor y = at::empty({rows, dim}, o.options());
    const auto stats = o.options().dtype(sum_type(o.scalar_type()));
    Tensor mean = at::empty({rows}, stats), rstd = at::empty({rows}, stats);
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
                 .seed = static_cast<uint64_t>(seed)},
                dtype_of(o));
    context->save_for_backward({o, u, weight, bias, mean, rstd});
    context->saved_data["dropout"] = dropout;
    context->saved_data["seed"] = seed;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &o = saved[0], &u = saved[1], &weight = saved[2], &bias = saved[3];
    const DeviceGuard guard(o);
    const Tensor dy = with_unit_last_stride(gradients[0]);
    const int64_t rows = o.size(0), dim = o.size(1);
    Tensor d_o = at::empty({rows, dim}, o.options()), du = at::empty({rows, dim}, o.options());
    Tensor dweight, dbias;
    if (weight.defined() || bias.defined()) {
      dweight = at::empty({dim}, o.options());
      dbias = at::empty({dim}, o.options());
    }
    LayerNormGateBackwardParams params{
        .o = o.const_data_ptr(),
        .u = u.const_data_ptr(),
        .weight = data_or_null(weight),
        .bias = data_or_null(bias),
        .mean = saved[4].const_data_ptr(),
        .rstd = saved[5].const_data_ptr(),
        .dy = dy.const_data_ptr(),
        .d_o = d_o.mutable_data_ptr(),
        .du = du.mutable_data_ptr(),
        .dweight = dweight.defined() ? dweight.mutable_data_ptr() : nullptr,
        .dbias = dbias.defined() ? dbias.mutable_data_ptr() : nullptr,
        .workspace = nullptr,
        .rows = rows,
        .dim = dim,
        .o_stride = o.stride(0),
        .u_stride = u.stride(0),
        .dy_stride = dy.stride(0),
        .d_o_stride = dim,
        .du_stride = dim,
        .dropout = context->saved_data["dropout"].toDouble(),
        .seed = static_cast<uint64_t>(context->saved_data["seed"].toInt())};
    const Tensor workspace = make_workspace(params, o);
    SEQFUSE_RUN(o, layer_norm_gate_backward, params, dtype_of(o));
    return {d_o,
            du,
            weight.defined() ? dweight : Tensor(),
            bias.defined() ? dbias : Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor layer_norm_gate(const Tensor& o, const Tensor& u, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps, double dropout, int64_t seed) {
  check_arguments(o, u, weight, bias, dropout);
  return LayerNormGate::apply(o, u, weight, bias, eps, dropout, seed);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "layer_norm_gate(Tensor o, Tensor u, Tensor? weight, Tensor? bias, float eps, float dropout, "
      "int seed) -> Tensor",
      &seqfuse::ops::layer_norm_gate);
}
