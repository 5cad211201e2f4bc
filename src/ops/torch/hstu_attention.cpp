#include "ops/kernels/hstu_attention.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>

#include "ops/torch/checks.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "hstu_attention";

JaggedHeads heads_of(const Tensor& tensor) {
  // Forward and backward write only to what they allocated themselves.
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

const int64_t* integers_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<int64_t>() : nullptr;
}

// The arguments in the form that the kernels want: checked, int64, contiguous but for q, k and v.
struct Inputs {
  Tensor q, k, v, q_offsets, k_offsets;
  Tensor num_contexts, num_targets, position_bias, time_bias, timestamps, request_times;
  double alpha;
  int64_t scaling_seqlen, causal, target_group_size, max_attn_len, min_full_attn_seq_len;

  void save(AutogradContext* context) const {
    context->save_for_backward({q, k, v, q_offsets, k_offsets, num_contexts, num_targets,
                                position_bias, time_bias, timestamps, request_times});
    context->saved_data["alpha"] = alpha;
    context->saved_data["options"] = std::vector<int64_t>{scaling_seqlen, causal, target_group_size,
                                                          max_attn_len, min_full_attn_seq_len};
  }

  static Inputs load(AutogradContext* context) {
    const auto t = context->get_saved_variables();
    const auto o = context->saved_data["options"].toIntVector();
    return {t[0], t[1], t[2], t[3], t[4],  t[5],
            t[6], t[7], t[8], t[9], t[10], context->saved_data["alpha"].toDouble(),
            o[0], o[1], o[2], o[3], o[4]};
  }

  HstuAttentionParams params() const {
    return {.batch = q_offsets.numel() - 1,
            .heads = q.size(1),
            .head_dim = q.size(2),
            .q = heads_of(q),
            .k = heads_of(k),
            .v = heads_of(v),
            .q_offsets = q_offsets.const_data_ptr<int64_t>(),
            .k_offsets = k_offsets.const_data_ptr<int64_t>(),
            .alpha = alpha,
            .scaling_seqlen = scaling_seqlen,
            .causal = causal != 0,
            .num_contexts = integers_or_null(num_contexts),
            .num_targets = integers_or_null(num_targets),
            .target_group_size = target_group_size,
            .max_attn_len = max_attn_len,
            .min_full_attn_seq_len = min_full_attn_seq_len,
            .position_bias = data_or_null(position_bias),
            .position_bias_size = position_bias.defined() ? position_bias.numel() : 0,
            .time_bias = data_or_null(time_bias),
            .num_time_buckets = time_bias.defined() ? time_bias.numel() : 0,
            .timestamps = integers_or_null(timestamps),
            .request_times = integers_or_null(request_times)};
  }
};

void check_qkv(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_rank({kOp, "q", q}, 3, "[Tq, H, d]");
  check_cpu_float({kOp, "q", q});
  TORCH_CHECK_VALUE(q.size(1) > 0 && q.size(2) > 0, kOp, ": q is ", q.sizes(),
                    "; expected at least one head and head_dim 1");
  for (const Arg& arg : {Arg{kOp, "k", k}, Arg{kOp, "v", v}}) {
    check_rank(arg, 3, "[Tk, H, d]");
    check_like(arg, {kOp, "q", q});
    TORCH_CHECK_VALUE(arg.tensor.size(1) == q.size(1), label(arg), " is ", arg.tensor.sizes(),
                      " but q is ", q.sizes(), "; the number of heads must match");
    TORCH_CHECK_VALUE(arg.tensor.size(2) == q.size(2), label(arg), " is ", arg.tensor.sizes(),
                      " but q is ", q.sizes(), "; head_dim must match");
  }
  TORCH_CHECK_VALUE(k.size(0) == v.size(0), kOp, ": v is ", v.sizes(), " but k is ", k.sizes(),
                    "; their rows must match");
}

void check_options(const HstuAttentionOptions& options) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    TORCH_CHECK_VALUE(value >= least, kOp, ": ", name, " is ", value, "; expected ", least,
                      " or more");
  };
  at_least("scaling_seqlen", options.scaling_seqlen, 1);
  at_least("target_group_size", options.target_group_size, 1);
  at_least("max_attn_len", options.max_attn_len, 0);
  at_least("min_full_attn_seq_len", options.min_full_attn_seq_len, 0);
}

// An optional int64 vector, contiguous; undefined where it is absent.
Tensor checked_integers(const char* name, const OptionalTensor& values, int64_t size,
                        const char* why) {
  if (!values || !values->defined()) return {};
  const Arg arg{kOp, name, *values};
  check_cpu(arg);
  check_int64(arg);
  check_sizes(arg, {size}, why);
  return values->contiguous();
}

// An optional vector of weights, like q.
Tensor checked_bias(const char* name, const OptionalTensor& values, const Tensor& q) {
  if (!values || !values->defined()) return {};
  const Arg arg{kOp, name, *values};
  check_rank(arg, 1, name[0] == 'p' ? "[2N - 1]" : "[buckets]");
  check_like(arg, {kOp, "q", q});
  TORCH_CHECK_VALUE(values->numel() > 0, label(arg), " is empty; pass none for no bias");
  return values->detach().contiguous();
}

void check_sequences(const Inputs& in) {
  const HstuAttentionParams p = in.params();
  TORCH_CHECK_VALUE(in.k_offsets.numel() == in.q_offsets.numel(), kOp, ": k_offsets has ",
                    in.k_offsets.numel(), " elements but q_offsets has ", in.q_offsets.numel(),
                    "; both need one more than there are sequences");
  int64_t longest = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t queries = p.q_offsets[b + 1] - p.q_offsets[b];
    const int64_t keys = p.k_offsets[b + 1] - p.k_offsets[b];
    TORCH_CHECK_VALUE(queries <= keys, kOp, ": sequence ", b, " has ", queries, " queries but ",
                      keys, " keys; queries are the last positions of the keys");
    const int64_t contexts = p.num_contexts ? p.num_contexts[b] : 0;
    const int64_t targets = p.num_targets ? p.num_targets[b] : 0;
    TORCH_CHECK_VALUE(contexts >= 0 && targets >= 0 && contexts + targets <= keys, kOp,
                      ": sequence ", b, " has ", contexts, " contexts and ", targets,
                      " targets in ", keys, " keys; expected two counts that fit");
    longest = std::max(longest, keys);
  }
  if (p.position_bias) {
    TORCH_CHECK_VALUE(p.position_bias_size % 2 == 1, kOp, ": position_bias has ",
                      p.position_bias_size, " elements; expected 2N - 1, an odd number");
    TORCH_CHECK_VALUE((p.position_bias_size + 1) / 2 >= longest, kOp, ": position_bias has ",
                      p.position_bias_size, " elements, for sequences of ",
                      (p.position_bias_size + 1) / 2, "; the longest here has ", longest,
                      ": expected at least ", 2 * longest - 1);
  }
  TORCH_CHECK_VALUE(!p.time_bias || p.timestamps, kOp,
                    ": time_bias was given without timestamps; both are needed");
}

class HstuAttention : public torch::autograd::Function<HstuAttention> {
 public:
  // The tensors that have gradients are arguments of their own; in has them again, contiguous.
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor&, const Tensor&,
                        const OptionalTensor&, const OptionalTensor&, const Inputs& in) {
    Tensor out = at::empty(q.sizes(), q.options());
    HstuAttentionParams params = in.params();
    params.out = heads_of(out);
    hstu_attention_forward_cpu(params, dtype_of(q));
    in.save(context);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Inputs in = Inputs::load(context);
    const Tensor dout = with_unit_last_stride(gradients[0]);
    const auto options = in.q.options();
    Tensor dq = at::empty(in.q.sizes(), options), dk = at::empty(in.k.sizes(), options),
           dv = at::empty(in.v.sizes(), options);
    HstuAttentionBackwardParams params{.forward = in.params(),
                                       .dout = heads_of(dout),
                                       .dq = heads_of(dq),
                                       .dk = heads_of(dk),
                                       .dv = heads_of(dv)};
    Tensor d_position_bias, d_time_bias, workspace;
    if (in.position_bias.defined()) {
      d_position_bias = at::empty_like(in.position_bias);
      params.d_position_bias = d_position_bias.mutable_data_ptr();
    }
    if (in.time_bias.defined()) {
      d_time_bias = at::empty_like(in.time_bias);
      params.d_time_bias = d_time_bias.mutable_data_ptr();
    }
    const HstuAttentionParams& p = params.forward;
    if (p.position_bias || p.time_bias) {
      workspace =
          at::empty({p.batch * p.heads, p.position_bias_size + p.num_time_buckets}, options);
      params.bias_workspace = workspace.mutable_data_ptr();
    }
    hstu_attention_backward_cpu(params, dtype_of(in.q));
    return {dq, dk, dv, d_position_bias, d_time_bias, Tensor()};
  }
};

Tensor hstu_attention_schema(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& q_offsets, const Tensor& k_offsets, double alpha,
                             int64_t scaling_seqlen, bool causal, int64_t target_group_size,
                             int64_t max_attn_len, int64_t min_full_attn_seq_len,
                             const OptionalTensor& num_contexts, const OptionalTensor& num_targets,
                             const OptionalTensor& position_bias, const OptionalTensor& time_bias,
                             const OptionalTensor& timestamps,
                             const OptionalTensor& request_times) {
  return hstu_attention(q, k, v, q_offsets, k_offsets,
                        {.alpha = alpha,
                         .scaling_seqlen = scaling_seqlen,
                         .causal = causal,
                         .target_group_size = target_group_size,
                         .max_attn_len = max_attn_len,
                         .min_full_attn_seq_len = min_full_attn_seq_len,
                         .num_contexts = num_contexts,
                         .num_targets = num_targets,
                         .position_bias = position_bias,
                         .time_bias = time_bias,
                         .timestamps = timestamps,
                         .request_times = request_times});
}

}  // namespace

Tensor hstu_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_offsets,
                      const Tensor& k_offsets, const HstuAttentionOptions& options) {
  check_qkv(q, k, v);
  check_options(options);
  const int64_t batch = q_offsets.numel() - 1;
  const Inputs in{
      .q = with_unit_last_stride(q.detach()),
      .k = with_unit_last_stride(k.detach()),
      .v = with_unit_last_stride(v.detach()),
      .q_offsets = checked_offsets({kOp, "q_offsets", q_offsets}, q.size(0), "q"),
      .k_offsets = checked_offsets({kOp, "k_offsets", k_offsets}, k.size(0), "k"),
      .num_contexts =
          checked_integers("num_contexts", options.num_contexts, batch, "one for each sequence"),
      .num_targets =
          checked_integers("num_targets", options.num_targets, batch, "one for each sequence"),
      .position_bias = checked_bias("position_bias", options.position_bias, q),
      .time_bias = checked_bias("time_bias", options.time_bias, q),
      .timestamps = checked_integers("timestamps", options.timestamps, k.size(0), "the rows of k"),
      .request_times =
          checked_integers("request_times", options.request_times, batch, "one for each sequence"),
      .alpha = options.alpha,
      .scaling_seqlen = options.scaling_seqlen,
      .causal = options.causal,
      .target_group_size = options.target_group_size,
      .max_attn_len = options.max_attn_len,
      .min_full_attn_seq_len = options.min_full_attn_seq_len};
  check_sequences(in);
  return HstuAttention::apply(q, k, v, options.position_bias, options.time_bias, in);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "hstu_attention(Tensor q, Tensor k, Tensor v, Tensor q_offsets, Tensor k_offsets, "
      "float alpha, int scaling_seqlen, bool causal=True, int target_group_size=1, "
      "int max_attn_len=0, int min_full_attn_seq_len=0, Tensor? num_contexts=None, "
      "Tensor? num_targets=None, Tensor? position_bias=None, Tensor? time_bias=None, "
      "Tensor? timestamps=None, Tensor? request_times=None) -> Tensor",
      &seqfuse::ops::hstu_attention_schema);
}
