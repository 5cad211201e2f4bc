// The passes of a fused HSTU layer, for 16 bits on a GPU.
//
// Savings over the separate operators: the gradients of u, v, q and k are written side by side, as
// the product with W_uvqk reads them, and multiplied by SiLU's derivative where they are computed;
// products and the layer norm add residuals and biases; weight gradients are float32, and those of
// the matrices and the sums of du run on a second stream.
#include <torch/types.h>

#include <optional>

#include "base/trace_range.h"
#include "ops/kernels/norm/layer_norm.h"
#include "ops/kernels/norm/layer_norm_gate.h"
#include "ops/torch/attention/hstu_attention_inputs.h"
#include "ops/torch/attention/hstu_layer_arguments.h"
#include "ops/torch/cuda.h"
#include "ops/torch/gemm/matmul.h"
#include "ops/torch/norm/column_sums.h"
#include "ops/torch/norm/norm_backward.h"
#include "ops/torch/ops.h"
#include "ops/torch/side_stream.h"

#ifdef SEQFUSE_HAS_CUDA
namespace seqfuse::ops {
namespace hstu_layer_fused_op {
namespace {

// The result, mean and reciprocal deviation of each row.
using Normed = std::tuple<Tensor, Tensor, Tensor>;

Normed input_norm(const LayerArguments& a) {
  static const auto op =
      find_operator<Normed(const Tensor&, const OptionalTensor&, const OptionalTensor&, double)>(
          "seqfuse::layer_norm_forward");
  return op.call(a.x, a.weights.input_norm_weight, a.weights.input_norm_bias, a.options.eps);
}

Normed gate(const LayerArguments& a, const Tensor& attended, const Tensor& u) {
  static const auto op = find_operator<Normed(const Tensor&, const Tensor&, const OptionalTensor&,
                                              const OptionalTensor&, double, double, c10::SymInt)>(
      "seqfuse::layer_norm_gate_forward");
  return op.call(attended, u, a.weights.output_norm_weight, a.weights.output_norm_bias,
                 a.options.eps, a.options.dropout, a.options.seed);
}

// What run() returns; its kernels have this name on the timeline of a profiler.
template <class Run>
auto traced(const char* name, const Run& run) {
  const TraceRange range(name);
  return run();
}

template <class... Values>
FusedResult run_forward(Values... values) {
  const LayerArguments a = layer_arguments(values...);
  const DeviceGuard guard(a.x);
  const HstuLayerWeights& w = a.weights;
  const auto [normed, input_mean, input_rstd] = traced("layer norm", [&] { return input_norm(a); });
  const Tensor before = at::empty({a.x.size(0), w.uvqk.size(1)}, a.x.options());
  const Tensor uvqk = at::empty_like(before);
  traced("uvqk SiLU", [&, normed = normed] {
    matmul_silu_into(uvqk, before, normed, w.uvqk, w.uvqk_bias.value_or(Tensor()));
  });
  const LayerParts parts(uvqk, a.options.heads);
  const Tensor attended = traced("attention", [&] {
    return hstu_attention(parts.q, parts.k, parts.v, a.offsets, a.offsets, a.options.attention)
        .flatten(1);
  });
  const auto [gated, output_mean, output_rstd] =
      traced("gate", [&] { return gate(a, attended, parts.u); });
  const Tensor out = at::empty_like(a.x);
  traced("output residual", [&, gated = gated] {
    matmul_into(out, gated, w.output, {.c = a.x, .bias = w.output_bias.value_or(Tensor())});
  });
  return {out,         input_mean,
          input_rstd,  a.options.recompute_input_layernorm ? Tensor() : normed,
          before,      a.options.recompute_input_silu ? Tensor() : uvqk,
          attended,    output_mean,
          output_rstd, gated};
}

template <class... Values>
FusedResult forward_shapes(Values... values) {
  const LayerArguments a = layer_arguments(values...);
  const c10::SymInt inner = a.weights.output.sym_size(0);
  const auto matrix = [&](const c10::SymInt& columns) {
    return empty_shape({a.x.sym_size(0), columns}, a.x.options());
  };
  const auto statistic = [&] { return empty_shape({a.x.sym_size(0)}, sum_options(a.x)); };
  return {
      empty_like_shape(a.x), statistic(),
      statistic(),           a.options.recompute_input_layernorm ? Tensor() : empty_like_shape(a.x),
      matrix(inner * 4),     a.options.recompute_input_silu ? Tensor() : matrix(inner * 4),
      matrix(inner),         statistic(),
      statistic(),           matrix(inner)};
}

// a^T b in float32, on a second stream.
Tensor product_gradient(const Tensor& a, const Tensor& b, SideStream& side) {
  const Tensor gradient = at::empty({a.size(1), b.size(1)}, b.options().dtype(at::kFloat));
  side.run([&] { matmul_into(gradient, a.t(), b); });
  return gradient;
}

Tensor bias_gradient(const Tensor& d) {
  const Tensor sums = at::empty({d.size(1)}, d.options().dtype(at::kFloat));
  column_sums_into(sums, d);
  return sums;
}

template <class... Values>
FusedGradients run_backward(const Tensor& dout_in, WantedGradients wanted, const Tensor& input_mean,
                            const Tensor& input_rstd, const OptionalTensor& kept_normed,
                            const Tensor& before, const OptionalTensor& kept_uvqk,
                            const Tensor& attended, const Tensor& output_mean,
                            const Tensor& output_rstd, const Tensor& gated, Values... values) {
  const LayerArguments a = layer_arguments(values...);
  const Tensor& x = a.x;
  const HstuLayerWeights& w = a.weights;
  const HstuLayerOptions& options = a.options;
  const DeviceGuard guard(x);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const DType dtype = dtype_of(x);
  const Tensor dout = dout_in.contiguous();
  SideStream side(x.get_device());

  std::optional<TraceRange> range(std::in_place, "output residual, backward");
  Tensor d_output, d_output_bias;
  if (wanted[kOutputWeight]) d_output = product_gradient(gated, dout, side);
  if (wanted[kOutputBias]) d_output_bias = bias_gradient(dout);
  // The gate reads this as dy and overwrites it with the gradient of attention's result.
  const Tensor dgated = at::empty_like(gated);
  matmul_into(dgated, dout, w.output.t());

  range.emplace("gate, backward");
  // The gradients of SiLU's pre-activations.
  const Tensor dbefore = at::empty_like(before);
  const Tensor uvqk = kept_uvqk ? *kept_uvqk : at::silu(before);
  const LayerParts d(dbefore, options.heads), z(before, options.heads), parts(uvqk, options.heads);
  AffineGradients output_norm(attended, {wanted[kOutputNormWeight], wanted[kOutputNormBias]},
                              at::kFloat);
  LayerNormGateBackwardParams gate_params = layer_norm_gate_backward_params(
      attended, parts.u, w.output_norm_weight.value_or(Tensor()),
      w.output_norm_bias.value_or(Tensor()), output_mean, output_rstd, dgated, dgated, d.u,
      options.dropout, options.seed.expect_int());
  gate_params.pre_u = z.u.const_data_ptr();
  gate_params.pre_u_stride = z.u.stride(0);
  output_norm.attach_to(gate_params);
  C10_CUDA_CHECK(layer_norm_gate_backward_cuda(gate_params, dtype, stream));

  range.emplace("attention, backward");
  // Attention sums its parts of the bias gradient while it writes their terms.
  const bool sums_apart = at::globalContext().deterministicAlgorithms();
  BeforeSilu before_silu{.q = z.q, .k = z.k, .v = z.v};
  Tensor d_uvqk_bias;
  if (wanted[kUvqkBias] && !sums_apart) {
    d_uvqk_bias = at::empty({before.size(1)}, before.options().dtype(at::kFloat));
    const auto sums = d_uvqk_bias.chunk(4);  // as LayerParts
    // Overlaps with attention's zeroing at its start.
    side.run([&] { column_sums_into(sums[0], d.u); });
    before_silu.total_dv = sums[1];
    before_silu.total_dq = sums[2];
    before_silu.total_dk = sums[3];
  }
  const auto [d_position_bias, d_time_bias] = attention_gradients_into(
      checked_attention_inputs(parts.q, parts.k, parts.v, a.offsets, a.offsets, options.attention),
      dgated.view(parts.q.sizes()), d.q, d.k, d.v, {wanted[kPositionBias], wanted[kTimeBias]},
      before_silu);

  range.emplace("uvqk SiLU, backward");
  Tensor normed = kept_normed.value_or(Tensor());
  if (!normed.defined() && wanted[kUvqkWeight]) normed = std::get<0>(input_norm(a));
  Tensor d_uvqk;
  if (wanted[kUvqkWeight]) d_uvqk = product_gradient(normed, dbefore, side);
  if (wanted[kUvqkBias] && sums_apart) d_uvqk_bias = bias_gradient(dbefore);

  Tensor dx;
  AffineGradients norm(x, {wanted[kInputNormWeight], wanted[kInputNormBias]}, at::kFloat);
  if (wanted[kX] || wanted[kInputNormWeight] || wanted[kInputNormBias]) {
    dx = at::empty_like(x);
    matmul_into(dx, dbefore, w.uvqk.t());
    range.emplace("layer norm, backward");
    LayerNormBackwardParams norm_params = layer_norm_backward_params(
        x, w.input_norm_weight.value_or(Tensor()), input_mean, input_rstd, dx, dx);
    norm_params.residual = dout.const_data_ptr();
    norm_params.residual_stride = dout.stride(0);
    norm.attach_to(norm_params);
    C10_CUDA_CHECK(layer_norm_backward_cuda(norm_params, dtype, stream));
  }
  range.reset();
  side.join();
  return {wanted[kX] ? dx : Tensor(),
          norm.weight(),
          norm.bias(),
          d_uvqk,
          d_uvqk_bias,
          output_norm.weight(),
          output_norm.bias(),
          d_output,
          d_output_bias,
          d_position_bias,
          d_time_bias};
}

template <class... Values>
FusedGradients backward_shapes(const Tensor&, WantedGradients wanted, const Tensor&, const Tensor&,
                               const OptionalTensor&, const Tensor&, const OptionalTensor&,
                               const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                               Values... values) {
  const LayerArguments a = layer_arguments(values...);
  const HstuLayerWeights& w = a.weights;
  const auto floats = [&](LayerGradient which, const OptionalTensor& like) {
    return wanted[which] ? empty_shape(like->sym_sizes(), like->options().dtype(at::kFloat))
                         : Tensor();
  };
  return {wanted[kX] ? empty_like_shape(a.x) : Tensor(),
          floats(kInputNormWeight, w.input_norm_weight),
          floats(kInputNormBias, w.input_norm_bias),
          floats(kUvqkWeight, w.uvqk),
          floats(kUvqkBias, w.uvqk_bias),
          floats(kOutputNormWeight, w.output_norm_weight),
          floats(kOutputNormBias, w.output_norm_bias),
          floats(kOutputWeight, w.output),
          floats(kOutputBias, w.output_bias),
          floats(kPositionBias, a.options.attention.position_bias),
          floats(kTimeBias, a.options.attention.time_bias)};
}

}  // namespace
}  // namespace hstu_layer_fused_op

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace hstu_layer_fused_op;
  FusedForward* const forward = &run_forward;
  FusedForward* const shapes = &forward_shapes;
  Definition(library, "hstu_layer_forward(" + layer_schema() +
                          ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
                          "Tensor, Tensor)")
      .cuda_kernel(forward, shapes)
      .no_gradient();
  FusedBackward* const backward = &run_backward;
  FusedBackward* const gradient_shapes = &backward_shapes;
  Definition(library,
             "hstu_layer_backward(Tensor dout, bool[11] wanted, Tensor input_mean, "
             "Tensor input_rstd, Tensor? normed, Tensor before, Tensor? uvqk, Tensor attended, "
             "Tensor output_mean, Tensor output_rstd, Tensor gated, " +
                 layer_schema() +
                 ") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, "
                 "Tensor, Tensor)")
      .cuda_kernel(backward, gradient_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
#endif
