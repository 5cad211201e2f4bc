// HSTU attention as an operator of the dispatcher: kernels, shapes and gradient.
#include <torch/torch.h>

#include <tuple>
#include <vector>

#include "ops/torch/dispatch.h"
#include "ops/torch/hstu_attention_inputs.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "seqfuse::hstu_attention";
constexpr const char* kBackward = "seqfuse::hstu_attention_backward";

// The operator's arguments in the order of the schema. Size: int64_t, or SymInt where they may be
// symbolic.
template <class Size>
struct Arguments {
  Tensor q, k, v, q_offsets, k_offsets;
  double alpha;
  Size scaling_seqlen;
  bool causal;
  int64_t target_group_size, max_attn_len, min_full_attn_seq_len;
  OptionalTensor num_contexts, num_targets, position_bias, time_bias, timestamps, request_times;
  Size max_seqlen;
};

// The signature of a function of them; Before: arguments that come first.
template <class Result, class Size, class... Before>
using Signature = Result(Before..., const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, double, Size, bool, int64_t, int64_t, int64_t,
                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                         const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, Size);
using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
template <class Size>
using Forward = Signature<Tensor, Size>;
template <class Size>
using Backward = Signature<Gradients, Size, const Tensor&>;

// Calls op with before and the arguments a.
template <class Op, class... Before>
auto call(const Op& op, const Arguments<c10::SymInt>& a, const Before&... before) {
  return op.call(before..., a.q, a.k, a.v, a.q_offsets, a.k_offsets, a.alpha, a.scaling_seqlen,
                 a.causal, a.target_group_size, a.max_attn_len, a.min_full_attn_seq_len,
                 a.num_contexts, a.num_targets, a.position_bias, a.time_bias, a.timestamps,
                 a.request_times, a.max_seqlen);
}

HstuAttentionInputs checked(const Arguments<int64_t>& a) {
  return checked_attention_inputs(a.q, a.k, a.v, a.q_offsets, a.k_offsets,
                                  {.alpha = a.alpha,
                                   .scaling_seqlen = a.scaling_seqlen,
                                   .causal = a.causal,
                                   .target_group_size = a.target_group_size,
                                   .max_attn_len = a.max_attn_len,
                                   .min_full_attn_seq_len = a.min_full_attn_seq_len,
                                   .max_seqlen = a.max_seqlen,
                                   .num_contexts = a.num_contexts,
                                   .num_targets = a.num_targets,
                                   .position_bias = a.position_bias,
                                   .time_bias = a.time_bias,
                                   .timestamps = a.timestamps,
                                   .request_times = a.request_times});
}

template <class... Values>
Tensor run_forward(Values... values) {
  const HstuAttentionInputs in = checked({values...});
  if (!has_attention_kernel(in)) return attention_by_matmul(in);
  Tensor out = at::empty(in.q.sizes(), in.q.options());
  attention_into(in, out);
  return out;
}

template <class... Values>
Tensor forward_shapes(const Tensor& q, Values...) {
  return empty_like_shape(q);
}

// In the dtype of a bias, whatever it was summed in.
Tensor like_bias(const Tensor& gradient, const OptionalTensor& bias) {
  return gradient.defined() ? gradient.to(bias->scalar_type()) : gradient;
}

template <class... Values>
Gradients run_backward(const Tensor& dout, Values... values) {
  const Arguments<int64_t> arguments{values...};
  const HstuAttentionInputs in = checked(arguments);
  HstuAttentionGradients d;
  if (has_attention_kernel(in)) {
    d.q = at::empty(in.q.sizes(), in.q.options());
    d.k = at::empty(in.k.sizes(), in.k.options());
    d.v = at::empty(in.v.sizes(), in.v.options());
    std::tie(d.position_bias, d.time_bias) =
        attention_gradients_into(in, with_unit_last_stride(dout), d.q, d.k, d.v);
  } else {
    d = attention_gradients_by_matmul(in, dout);
  }
  return {d.q, d.k, d.v, like_bias(d.position_bias, arguments.position_bias),
          like_bias(d.time_bias, arguments.time_bias)};
}

template <class... Values>
Gradients backward_shapes(const Tensor&, Values... values) {
  const Arguments<c10::SymInt> a{values...};
  const auto of_bias = [](const OptionalTensor& bias) {
    return bias && bias->defined() ? empty_like_shape(*bias) : Tensor();
  };
  return {empty_like_shape(a.q), empty_like_shape(a.k), empty_like_shape(a.v),
          of_bias(a.position_bias), of_bias(a.time_bias)};
}

class HstuAttention : public torch::autograd::Function<HstuAttention> {
 public:
  // The tensors that have gradients are arguments of their own; a has them again.
  static Tensor forward(AutogradContext* context, const Tensor&, const Tensor&, const Tensor&,
                        const OptionalTensor&, const OptionalTensor&,
                        const Arguments<c10::SymInt>& a) {
    static const auto op = find_operator<Forward<c10::SymInt>>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor out = call(op, a);
    const auto tensor = [](const OptionalTensor& value) { return value.value_or(Tensor()); };
    context->save_for_backward({a.q, a.k, a.v, a.q_offsets, a.k_offsets, tensor(a.num_contexts),
                                tensor(a.num_targets), tensor(a.position_bias), tensor(a.time_bias),
                                tensor(a.timestamps), tensor(a.request_times)});
    context->saved_data["alpha"] = a.alpha;
    context->saved_data["options"] = std::vector<int64_t>{a.causal, a.target_group_size,
                                                          a.max_attn_len, a.min_full_attn_seq_len};
    context->saved_data["scaling_seqlen"] = a.scaling_seqlen;
    context->saved_data["max_seqlen"] = a.max_seqlen;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<Backward<c10::SymInt>>(kBackward);
    const auto t = context->get_saved_variables();
    const auto options = context->saved_data["options"].toIntVector();
    const Arguments<c10::SymInt> a{
        .q = t[0],
        .k = t[1],
        .v = t[2],
        .q_offsets = t[3],
        .k_offsets = t[4],
        .alpha = context->saved_data["alpha"].toDouble(),
        .scaling_seqlen = context->saved_data["scaling_seqlen"].toSymInt(),
        .causal = options[0] != 0,
        .target_group_size = options[1],
        .max_attn_len = options[2],
        .min_full_attn_seq_len = options[3],
        .num_contexts = optional_of(t[5]),
        .num_targets = optional_of(t[6]),
        .position_bias = optional_of(t[7]),
        .time_bias = optional_of(t[8]),
        .timestamps = optional_of(t[9]),
        .request_times = optional_of(t[10]),
        .max_seqlen = context->saved_data["max_seqlen"].toSymInt()};
    const auto [dq, dk, dv, d_position_bias, d_time_bias] = call(op, a, gradients[0]);
    return {dq, dk, dv, d_position_bias, d_time_bias, Tensor()};
  }
};

template <class... Values>
Tensor with_gradient(Values... values) {
  const Arguments<c10::SymInt> a{values...};
  return HstuAttention::apply(a.q, a.k, a.v, a.position_bias, a.time_bias, a);
}

}  // namespace

Tensor hstu_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                      const Tensor& k_offsets, const HstuAttentionOptions& options) {
  static const auto op = find_operator<Forward<c10::SymInt>>(kForward);
  return call(op, {.q = q,
                   .k = k,
                   .v = v,
                   .q_offsets = q_offsets,
                   .k_offsets = k_offsets,
                   .alpha = options.alpha,
                   .scaling_seqlen = options.scaling_seqlen,
                   .causal = options.causal,
                   .target_group_size = options.target_group_size,
                   .max_attn_len = options.max_attn_len,
                   .min_full_attn_seq_len = options.min_full_attn_seq_len,
                   .num_contexts = options.num_contexts,
                   .num_targets = options.num_targets,
                   .position_bias = options.position_bias,
                   .time_bias = options.time_bias,
                   .timestamps = options.timestamps,
                   .request_times = options.request_times,
                   .max_seqlen = options.max_seqlen});
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  const std::string arguments =
      "Tensor q, Tensor k, Tensor v, Tensor q_offsets, Tensor k_offsets, float alpha, "
      "SymInt scaling_seqlen, bool causal=True, int target_group_size=1, int max_attn_len=0, "
      "int min_full_attn_seq_len=0, Tensor? num_contexts=None, Tensor? num_targets=None, "
      "Tensor? position_bias=None, Tensor? time_bias=None, Tensor? timestamps=None, "
      "Tensor? request_times=None, SymInt max_seqlen=0";
  Forward<int64_t>* const forward = &run_forward;
  Forward<c10::SymInt>* const shapes = &forward_shapes;
  Forward<c10::SymInt>* const autograd = &with_gradient;
  Definition(library, "hstu_attention(" + arguments + ") -> Tensor")
      .kernels(forward, shapes)
      .autograd(autograd);
  Backward<int64_t>* const backward = &run_backward;
  Backward<c10::SymInt>* const gradient_shapes = &backward_shapes;
  Definition(library, "hstu_attention_backward(Tensor dout, " + arguments +
                          ") -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
      .kernels(backward, gradient_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
