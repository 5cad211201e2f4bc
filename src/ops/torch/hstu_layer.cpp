// A whole HSTU layer: in 16 bits on a GPU as one operator with its own backward pass, else made of
// the other operators.
//
// What the fused form saves over that: the gradients of u, v, q and k are written side by side, as
// the product with W_uvqk reads them, and multiplied by the derivative of SiLU where they arise;
// residuals and biases are added by the products and by the layer norm; gradients of the matrices
// are float32, on a second stream.
#include <torch/torch.h>

#include "ops/kernels/hstu_attention.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/layer_norm_gate.h"
#include "ops/torch/cuda.h"
#include "ops/torch/hstu_attention_inputs.h"
#include "ops/torch/matmul.h"
#include "ops/torch/ops.h"
#include "ops/torch/side_stream.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "hstu_layer";

bool is_there(const OptionalTensor& weight) {
  return weight && weight->defined();
}
// In the dtype of x, undefined or absent where it is.
Tensor like(const OptionalTensor& weight, const Tensor& x) {
  return is_there(weight) ? weight->detach().to(x.scalar_type()).contiguous() : Tensor();
}
OptionalTensor optional_like(const OptionalTensor& weight, const Tensor& x) {
  return is_there(weight) ? OptionalTensor(weight->to(x.scalar_type())) : std::nullopt;
}

void check_arguments(const Tensor& x, const HstuLayerWeights& weights,
                     const HstuLayerOptions& options) {
  check_rank({kOp, "x", x}, 2, "[T, D]");
  check_rank({kOp, "uvqk weight", weights.uvqk}, 2, "[D, 4 H d]");
  check_rank({kOp, "output weight", weights.output}, 2, "[H d, D]");
  const int64_t width = x.size(1), inner = weights.output.size(0);
  TORCH_CHECK_VALUE(options.heads > 0 && inner > 0 && inner % options.heads == 0, kOp,
                    ": output weight is ", weights.output.sizes(), " for ", options.heads,
                    " heads; expected rows that divide into them");
  const auto check = [&](const char* name, const OptionalTensor& weight, at::IntArrayRef sizes) {
    if (!is_there(weight)) return;
    const Arg arg{kOp, name, *weight};
    check_sizes(arg, sizes, "x and the output weight");
    check_on(arg, x.device());
    const auto type = weight->scalar_type();
    TORCH_CHECK_VALUE(type == x.scalar_type() || type == at::kFloat, label(arg), " is ", type,
                      " but x is ", x.scalar_type(), "; expected the same or Float");
  };
  check("input norm weight", weights.input_norm_weight, {width});
  check("input norm bias", weights.input_norm_bias, {width});
  check("uvqk weight", weights.uvqk, {width, 4 * inner});
  check("uvqk bias", weights.uvqk_bias, {4 * inner});
  check("output norm weight", weights.output_norm_weight, {inner});
  check("output norm bias", weights.output_norm_bias, {inner});
  check("output weight", weights.output, {inner, width});
  check("output bias", weights.output_bias, {width});
  check_dropout_probability(kOp, options.dropout);
}

// u, v, q and k, or their gradients, in the columns of one matrix [T, 4 H d].
struct Parts {
  Parts(const Tensor& uvqk, int64_t heads) {
    const int64_t rows = uvqk.size(0), inner = uvqk.size(1) / 4;
    u = uvqk.slice(1, 0, inner);
    const auto heads_at = [&](int64_t part) {
      return uvqk.slice(1, part * inner, (part + 1) * inner).view({rows, heads, inner / heads});
    };
    v = heads_at(1);
    q = heads_at(2);
    k = heads_at(3);
  }
  Tensor u, v, q, k;  // [T, H d], [T, H, d] thrice
};

// Differentiable through the operators that it is made of.
Tensor layer_of_operators(const Tensor& x, const HstuLayerWeights& weights, const Tensor& offsets,
                          const HstuLayerOptions& options) {
  const Tensor normed = layer_norm(x, optional_like(weights.input_norm_weight, x),
                                   optional_like(weights.input_norm_bias, x), options.eps);
  const Tensor uvqk_weight = weights.uvqk.to(x.scalar_type());
  const OptionalTensor uvqk_bias = optional_like(weights.uvqk_bias, x);
  const Tensor uvqk = at::silu(uvqk_bias ? at::addmm(*uvqk_bias, normed, uvqk_weight)
                                         : at::mm(normed, uvqk_weight));
  const Parts parts(uvqk, options.heads);
  HstuAttentionOptions attention = options.attention;
  if (!x.is_cuda()) {
    for (OptionalTensor* bias : {&attention.position_bias, &attention.time_bias})
      if (*bias) *bias = (*bias)->to(x.scalar_type());
  }
  const Tensor attended = hstu_attention(parts.q, parts.k, parts.v, offsets, offsets, attention);
  const Tensor gated = layer_norm_gate(
      attended.flatten(1), parts.u, optional_like(weights.output_norm_weight, x),
      optional_like(weights.output_norm_bias, x), options.eps, options.dropout, options.seed);
  Tensor out = at::addmm(x, gated, weights.output.to(x.scalar_type()));
  return is_there(weights.output_bias) ? out.add_(*weights.output_bias) : out;
}

#ifdef SEQFUSE_HAS_CUDA
// What backward needs beside tensors.
struct Call : torch::CustomClassHolder {
  HstuLayerOptions options;  // its biases undefined: they are saved as variables
  Tensor offsets;
};

struct Statistics {
  Tensor mean, rstd;  // float32 [T]
  explicit Statistics(const Tensor& x)
      : mean(at::empty({x.size(0)}, x.options().dtype(at::kFloat))), rstd(at::empty_like(mean)) {}
  Statistics(Tensor m, Tensor r) : mean(std::move(m)), rstd(std::move(r)) {}
};

LayerNormParams norm_params(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& y, const Statistics& statistics, double eps) {
  return {.x = x.const_data_ptr(),
          .weight = data_or_null(weight),
          .bias = data_or_null(bias),
          .y = y.mutable_data_ptr(),
          .mean = statistics.mean.mutable_data_ptr(),
          .rstd = statistics.rstd.mutable_data_ptr(),
          .rows = x.size(0),
          .dim = x.size(1),
          .x_stride = x.stride(0),
          .y_stride = y.stride(0),
          .eps = eps};
}

// The gradients of the weight and the bias of a norm, of which one may be absent, and memory for
// their parts.
struct AffineGradients {
  AffineGradients(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t partials)
      : has_weight(weight.defined()), has_bias(bias.defined()) {
    if (!has_weight && !has_bias) return;
    dweight = at::empty({x.size(1)}, x.options());
    dbias = at::empty_like(dweight);
    workspace = at::empty({partials, 2, x.size(1)}, x.options().dtype(at::kFloat));
  }
  template <class Params>
  void set(Params& params) const {
    params.dweight = dweight.defined() ? dweight.mutable_data_ptr() : nullptr;
    params.dbias = dbias.defined() ? dbias.mutable_data_ptr() : nullptr;
    params.workspace = workspace.defined() ? workspace.mutable_data_ptr<float>() : nullptr;
  }
  Tensor of_weight() const { return has_weight ? dweight : Tensor(); }
  Tensor of_bias() const { return has_bias ? dbias : Tensor(); }

  bool has_weight, has_bias;
  Tensor dweight, dbias, workspace;
};

// a^T b in float32, and the sums of the columns of b where a bias wants them.
struct WeightGradient {
  WeightGradient(const Tensor& a, const Tensor& b, bool with_bias, SideStream& side)
      : weight(at::empty({a.size(1), b.size(1)}, a.options().dtype(at::kFloat))) {
    if (with_bias) bias = at::empty({b.size(1)}, weight.options());
    side.run([&] { matmul_into(weight, a.t(), b, {.column_sums = bias}); });
  }
  Tensor weight, bias;
};

class HstuLayer : public torch::autograd::Function<HstuLayer> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_in,
                        const OptionalTensor& input_norm_weight,
                        const OptionalTensor& input_norm_bias, const Tensor& uvqk_weight,
                        const OptionalTensor& uvqk_bias, const OptionalTensor& output_norm_weight,
                        const OptionalTensor& output_norm_bias, const Tensor& output_weight,
                        const OptionalTensor& output_bias, const OptionalTensor& position_bias,
                        const OptionalTensor& time_bias, const c10::intrusive_ptr<Call>& call) {
    const DeviceGuard guard(x_in);
    const HstuLayerOptions& options = call->options;
    const Tensor x = x_in.contiguous();
    const int64_t tokens = x.size(0), inner = output_weight.size(0);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const DType dtype = dtype_of(x);

    Tensor normed = at::empty_like(x);
    const Statistics input(x), output(x);
    const Tensor norm_weight = like(input_norm_weight, x), norm_bias = like(input_norm_bias, x);
    C10_CUDA_CHECK(layer_norm_forward_cuda(
        norm_params(x, norm_weight, norm_bias, normed, input, options.eps), dtype, stream));
    const Tensor before = at::empty({tokens, 4 * inner}, x.options());
    const Tensor w_uvqk = like(uvqk_weight, x), w_output = like(output_weight, x);
    matmul_into(before, normed, w_uvqk, {.bias = like(uvqk_bias, x)});
    Tensor uvqk = at::silu(before);

    const Parts parts(uvqk, options.heads);
    const Tensor attended = at::empty({tokens, inner}, x.options());
    HstuAttentionOptions attention = options.attention;
    attention.position_bias = position_bias;
    attention.time_bias = time_bias;
    const HstuAttentionInputs in = checked_attention_inputs(
        parts.q, parts.k, parts.v, call->offsets, call->offsets, attention);
    attention_into(in, attended.view(parts.q.sizes()));

    const Tensor gate_weight = like(output_norm_weight, x), gate_bias = like(output_norm_bias, x);
    const Tensor gated = at::empty({tokens, inner}, x.options());
    C10_CUDA_CHECK(layer_norm_gate_forward_cuda({.o = attended.const_data_ptr(),
                                                 .u = parts.u.const_data_ptr(),
                                                 .weight = data_or_null(gate_weight),
                                                 .bias = data_or_null(gate_bias),
                                                 .y = gated.mutable_data_ptr(),
                                                 .mean = output.mean.mutable_data_ptr(),
                                                 .rstd = output.rstd.mutable_data_ptr(),
                                                 .rows = tokens,
                                                 .dim = inner,
                                                 .o_stride = inner,
                                                 .u_stride = parts.u.stride(0),
                                                 .y_stride = inner,
                                                 .eps = options.eps,
                                                 .dropout = options.dropout,
                                                 .seed = static_cast<uint64_t>(options.seed)},
                                                dtype, stream));
    Tensor out = at::empty_like(x);
    matmul_into(out, gated, w_output, {.c = x, .bias = like(output_bias, x)});

    if (options.recompute_input_layernorm) normed = Tensor();
    if (options.recompute_input_silu) uvqk = Tensor();
    context->save_for_backward({x, norm_weight, norm_bias, input.mean, input.rstd, normed, w_uvqk,
                                before, uvqk, attended, gate_weight, gate_bias, output.mean,
                                output.rstd, gated, w_output, in.position_bias, in.time_bias});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->saved_data["uvqk_bias"] = is_there(uvqk_bias);
    context->saved_data["output_bias"] = is_there(output_bias);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled(),
                                "hstu_layer: second derivatives are not supported");
    const auto saved = context->get_saved_variables();
    const auto call =
        c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    const HstuLayerOptions& options = call->options;
    const Tensor &x = saved[0], &norm_weight = saved[1], &norm_bias = saved[2];
    const Statistics input(saved[3], saved[4]), output(saved[12], saved[13]);
    Tensor normed = saved[5];
    const Tensor &w_uvqk = saved[6], &before = saved[7], &attended = saved[9],
                 &gate_weight = saved[10], &gate_bias = saved[11], &gated = saved[14],
                 &w_output = saved[15];
    const DeviceGuard guard(x);
    const int64_t tokens = x.size(0), inner = attended.size(1);
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const DType dtype = dtype_of(x);
    const Tensor dout = gradients[0].contiguous();
    SideStream side(x.get_device());

    const bool with_output_bias = context->saved_data["output_bias"].toBool();
    const WeightGradient d_output(gated, dout, with_output_bias, side);
    const Tensor dgated = at::empty_like(gated);
    matmul_into(dgated, dout, w_output.t());

    // The gradients of what SiLU was applied to.
    const Tensor dbefore = at::empty_like(before);
    const Tensor uvqk = saved[8].defined() ? saved[8] : at::silu(before);
    const Parts d(dbefore, options.heads), z(before, options.heads), parts(uvqk, options.heads);
    const AffineGradients gate(attended, gate_weight, gate_bias,
                               layer_norm_gate_backward_partials(tokens, inner));
    LayerNormGateBackwardParams gate_params{.o = attended.const_data_ptr(),
                                            .u = parts.u.const_data_ptr(),
                                            .weight = data_or_null(gate_weight),
                                            .bias = data_or_null(gate_bias),
                                            .mean = output.mean.const_data_ptr(),
                                            .rstd = output.rstd.const_data_ptr(),
                                            .dy = dgated.const_data_ptr(),
                                            .d_o = dgated.mutable_data_ptr(),
                                            .du = d.u.mutable_data_ptr(),
                                            .dweight = nullptr,
                                            .dbias = nullptr,
                                            .workspace = nullptr,
                                            .rows = tokens,
                                            .dim = inner,
                                            .o_stride = inner,
                                            .u_stride = parts.u.stride(0),
                                            .dy_stride = inner,
                                            .d_o_stride = inner,
                                            .du_stride = d.u.stride(0),
                                            .dropout = options.dropout,
                                            .seed = static_cast<uint64_t>(options.seed),
                                            .pre_u = z.u.const_data_ptr(),
                                            .pre_u_stride = z.u.stride(0)};
    gate.set(gate_params);
    C10_CUDA_CHECK(layer_norm_gate_backward_cuda(gate_params, dtype, stream));

    HstuAttentionOptions attention = options.attention;
    if (saved[16].defined()) attention.position_bias = saved[16];
    if (saved[17].defined()) attention.time_bias = saved[17];
    const auto [d_position_bias, d_time_bias] = attention_gradients_into(
        checked_attention_inputs(parts.q, parts.k, parts.v, call->offsets, call->offsets,
                                 attention),
        dgated.view(parts.q.sizes()), d.q, d.k, d.v, {.q = z.q, .k = z.k, .v = z.v});

    if (!normed.defined()) {
      normed = at::empty_like(x);
      C10_CUDA_CHECK(layer_norm_forward_cuda(
          norm_params(x, norm_weight, norm_bias, normed, input, options.eps), dtype, stream));
    }
    const bool with_uvqk_bias = context->saved_data["uvqk_bias"].toBool();
    const WeightGradient d_uvqk(normed, dbefore, with_uvqk_bias, side);
    const Tensor dx = at::empty_like(x);
    matmul_into(dx, dbefore, w_uvqk.t());
    const AffineGradients norm(x, norm_weight, norm_bias,
                               layer_norm_backward_partials(tokens, x.size(1)));
    LayerNormBackwardParams norm_backward{.x = x.const_data_ptr(),
                                          .weight = data_or_null(norm_weight),
                                          .mean = input.mean.const_data_ptr(),
                                          .rstd = input.rstd.const_data_ptr(),
                                          .dy = dx.const_data_ptr(),
                                          .dx = dx.mutable_data_ptr(),
                                          .dweight = nullptr,
                                          .dbias = nullptr,
                                          .workspace = nullptr,
                                          .rows = tokens,
                                          .dim = x.size(1),
                                          .x_stride = x.stride(0),
                                          .dy_stride = dx.stride(0),
                                          .dx_stride = dx.stride(0),
                                          .residual = dout.const_data_ptr(),
                                          .residual_stride = dout.stride(0)};
    norm.set(norm_backward);
    C10_CUDA_CHECK(layer_norm_backward_cuda(norm_backward, dtype, stream));
    side.join();
    return {dx,
            norm.of_weight(),
            norm.of_bias(),
            d_uvqk.weight,
            d_uvqk.bias,
            gate.of_weight(),
            gate.of_bias(),
            d_output.weight,
            d_output.bias,
            d_position_bias,
            d_time_bias,
            Tensor()};
  }
};

bool is_fused(const Tensor& x, const HstuLayerWeights& weights, const Tensor& offsets,
              const HstuLayerOptions& options) {
  HstuAttentionParams attention;
  attention.batch = offsets.numel() - 1;
  attention.heads = options.heads;
  attention.head_dim = weights.output.size(0) / options.heads;
  return x.is_cuda() && hstu_attention_cuda_takes(attention, dtype_of(x));
}
#endif

}  // namespace

Tensor hstu_layer(const Tensor& x, const HstuLayerWeights& weights, const Tensor& offsets,
                  const HstuLayerOptions& options) {
  check_arguments(x, weights, options);
#ifdef SEQFUSE_HAS_CUDA
  if (is_fused(x, weights, offsets, options)) {
    const auto call = c10::make_intrusive<Call>();
    call->options = options;
    call->options.attention.position_bias.reset();
    call->options.attention.time_bias.reset();
    call->offsets = offsets;
    return HstuLayer::apply(x, weights.input_norm_weight, weights.input_norm_bias, weights.uvqk,
                            weights.uvqk_bias, weights.output_norm_weight, weights.output_norm_bias,
                            weights.output, weights.output_bias, options.attention.position_bias,
                            options.attention.time_bias, call);
  }
#endif
  return layer_of_operators(x, weights, offsets, options);
}

}  // namespace seqfuse::ops
