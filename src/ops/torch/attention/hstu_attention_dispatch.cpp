// HSTU attention as an operator of the dispatcher: kernels, shapes and gradient.
#include <torch/autograd.h>
#include <torch/types.h>

#include <tuple>

#include "ops/torch/attention/hstu_attention_inputs.h"
#include "ops/torch/attention/hstu_attention_options.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace hstu_attention_dispatch_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "seqfuse::hstu_attention";
constexpr const char* kBackward = "seqfuse::hstu_attention_backward";

// The arguments before the options: q, k, v, q_offsets, k_offsets.
using Forward = AttentionSignature<Tensor, const Tensor&, const Tensor&, const Tensor&,
                                   const Tensor&, const Tensor&>;
// The backward pass also takes dout and the wanted bias gradients, first.
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Backward = AttentionSignature<Gradients, const Tensor&, WantedBiases, const Tensor&,
                                    const Tensor&, const Tensor&, const Tensor&, const Tensor&>;

template <class... Options>
Tensor run_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                   const Tensor& k_offsets, Options... options) {
  const HstuAttentionInputs in =
      checked_attention_inputs(q, k, v, q_offsets, k_offsets, attention_options(options...));
  if (!has_attention_kernel(in)) return attention_by_matmul(in);
  Tensor out = at::empty(in.q.sizes(), in.q.options());
  attention_into(in, out);
  return out;
}

template <class... Values>
Tensor forward_shapes(const Tensor& q, Values...) {
  return empty_like_shape(q);
}

// Converts to the bias's dtype, whatever the sums were in.
Tensor like_bias(const Tensor& gradient, const OptionalTensor& bias) {
  return gradient.defined() ? gradient.to(bias->scalar_type()) : gradient;
}

template <class... Values>
Gradients run_backward(const Tensor& dout, WantedBiases wanted, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& q_offsets, const Tensor& k_offsets,
                       Values... values) {
  const HstuAttentionOptions options = attention_options(values...);
  const HstuAttentionInputs in = checked_attention_inputs(q, k, v, q_offsets, k_offsets, options);
  HstuAttentionGradients d;
  if (has_attention_kernel(in)) {
    d.q = at::empty(in.q.sizes(), in.q.options());
    d.k = at::empty(in.k.sizes(), in.k.options());
    d.v = at::empty(in.v.sizes(), in.v.options());
    std::tie(d.position_bias, d.time_bias) =
        attention_gradients_into(in, with_unit_last_stride(dout), d.q, d.k, d.v, wanted);
  } else {
    d = attention_gradients_by_matmul(in, dout, wanted);
  }
  return {d.q, d.k, d.v, like_bias(d.position_bias, options.position_bias),
          like_bias(d.time_bias, options.time_bias)};
}

template <class... Values>
Gradients backward_shapes(const Tensor&, WantedBiases wanted, const Tensor& q, const Tensor& k,
                          const Tensor& v, const Tensor&, const Tensor&, Values... values) {
  const HstuAttentionOptions options = attention_options(values...);
  const auto of_bias = [](const OptionalTensor& bias, bool is_wanted) {
    return is_wanted && bias && bias->defined() ? empty_like_shape(*bias) : Tensor();
  };
  return {empty_like_shape(q), empty_like_shape(k), empty_like_shape(v),
          of_bias(options.position_bias, wanted[0]), of_bias(options.time_bias, wanted[1])};
}

class HstuAttention : public torch::autograd::Function<HstuAttention> {
 public:
  // Tensors with gradients are separate arguments; options also contains the biases.
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const OptionalTensor&, const OptionalTensor&, const Tensor& q_offsets,
                        const Tensor& k_offsets, const HstuAttentionOptions& options) {
    static const auto op = find_operator<Forward>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor out = call_with(op, options, q, k, v, q_offsets, k_offsets);
    variable_list saved{q, k, v, q_offsets, k_offsets};
    for (const Tensor& tensor : tensors_of(options)) saved.push_back(tensor);
    context->save_for_backward(std::move(saved));
    save_options(context, options);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<Backward>(kBackward);
    const auto t = context->get_saved_variables();
    const auto options = saved_options(context, std::span(t).subspan(5));
    const auto wanted = wanted_gradients<5>(context, {t[0], t[1], t[2], t[5], t[6]});
    const auto [dq, dk, dv, d_position_bias, d_time_bias] =
        call_with(op, options, gradients[0], WantedBiases{wanted[3], wanted[4]}, t[0], t[1], t[2],
                  t[3], t[4]);
    return {dq, dk, dv, d_position_bias, d_time_bias, Tensor(), Tensor(), Tensor()};
  }
};

template <class... Values>
Tensor with_gradient(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                     const Tensor& k_offsets, Values... values) {
  const HstuAttentionOptions options = attention_options(values...);
  return HstuAttention::apply(q, k, v, options.position_bias, options.time_bias, q_offsets,
                              k_offsets, options);
}

}  // namespace
}  // namespace hstu_attention_dispatch_op

Tensor hstu_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                      const Tensor& k_offsets, const HstuAttentionOptions& options) {
  static const auto op =
      find_operator<hstu_attention_dispatch_op::Forward>(hstu_attention_dispatch_op::kForward);
  return call_with(op, options, q, k, v, q_offsets, k_offsets);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace hstu_attention_dispatch_op;
  const std::string arguments =
      "Tensor q, Tensor k, Tensor v, Tensor q_offsets, Tensor k_offsets, " + attention_schema();
  Forward* const forward = &run_forward;
  Forward* const shapes = &forward_shapes;
  Forward* const autograd = &with_gradient;
  Definition(library, "hstu_attention(" + arguments + ") -> Tensor")
      .kernels(forward, shapes)
      .autograd(autograd);
  Backward* const backward = &run_backward;
  Backward* const gradient_shapes = &backward_shapes;
  Definition(library, "hstu_attention_backward(Tensor dout, bool[2] wanted_biases, " + arguments +
                          ") -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
      .kernels(backward, gradient_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
