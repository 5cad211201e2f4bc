#include "ops/kernels/attention/hstu_attention.h"

#include <torch/types.h>

#include <algorithm>

#include "ops/torch/attention/hstu_attention_inputs.h"
#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

constexpr const char* kHstuAttention = "hstu_attention";

JaggedHeads heads_of(const Tensor& tensor) {
  // const_cast: forward and backward write only to tensors that they allocated.
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.stride(0), tensor.stride(1)};
}

const int64_t* integers_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<int64_t>() : nullptr;
}

HstuAttentionParams params_of(const HstuAttentionInputs& in) {
  return {.batch = in.q_offsets.numel() - 1,
          .heads = in.q.size(1),
          .head_dim = in.q.size(2),
          .q = heads_of(in.q),
          .k = heads_of(in.k),
          .v = heads_of(in.v),
          .q_offsets = static_cast<const int64_t*>(in.q_offsets.const_data_ptr()),
          .k_offsets = static_cast<const int64_t*>(in.k_offsets.const_data_ptr()),
          .alpha = in.alpha,
          .scaling_seqlen = in.scaling_seqlen,
          .mask = in.mask,
          .num_contexts = integers_or_null(in.num_contexts),
          .num_targets = integers_or_null(in.num_targets),
          .position_bias = data_or_null(in.position_bias),
          .position_bias_size = in.position_bias.defined() ? in.position_bias.numel() : 0,
          .time_bias = data_or_null(in.time_bias),
          .num_time_buckets = in.time_bias.defined() ? in.time_bias.numel() : 0,
          .timestamps = integers_or_null(in.timestamps),
          .request_times = integers_or_null(in.request_times),
          .total_queries = in.q.size(0),
          .total_keys = in.k.size(0),
          .max_seqlen = in.max_seqlen,
          .int32_offsets = in.q_offsets.scalar_type() == at::kInt};
}

// Memory for a launcher. It may be freed after the launch: the allocator reuses it in stream order.
[[maybe_unused]] Tensor workspace_like(const Tensor& q, int64_t bytes) {
  return at::empty({bytes}, q.options().dtype(at::kByte));
}

void run_attention(HstuAttentionParams& params, const Tensor& q) {
#ifdef SEQFUSE_HAS_CUDA
  if (q.is_cuda()) {
    const Tensor workspace = workspace_like(q, hstu_attention_forward_workspace_bytes(params));
    params.workspace = workspace.mutable_data_ptr();
    C10_CUDA_CHECK(
        hstu_attention_forward_cuda(params, dtype_of(q), c10::cuda::getCurrentCUDAStream()));
    return;
  }
#endif
  hstu_attention_forward_cpu(params, dtype_of(q));
}

void run_attention_backward(HstuAttentionBackwardParams& params, const Tensor& q) {
  HstuAttentionParams& p = params.forward;
#ifdef SEQFUSE_HAS_CUDA
  if (q.is_cuda()) {
    params.deterministic = at::globalContext().deterministicAlgorithms();
    const Tensor workspace = workspace_like(q, hstu_attention_backward_workspace_bytes(params));
    p.workspace = workspace.mutable_data_ptr();
    C10_CUDA_CHECK(
        hstu_attention_backward_cuda(params, dtype_of(q), c10::cuda::getCurrentCUDAStream()));
    return;
  }
#endif
  Tensor workspace;
  if (params.d_position_bias || params.d_time_bias) {
    workspace =
        at::empty({p.batch * p.heads, p.position_bias_size + p.num_time_buckets}, q.options());
    params.bias_workspace = workspace.mutable_data_ptr();
  }
  hstu_attention_backward_cpu(params, dtype_of(q));
}

void check_qkv(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_rank({kHstuAttention, "q", q}, 3, "[Tq, H, d]");
  if (q.is_cuda()) {
    const auto type = q.scalar_type();
    TORCH_CHECK_VALUE(type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
                      kHstuAttention, ": q is ", type, " on ", q.device(),
                      "; expected Float, Half or BFloat16 on CUDA");
  } else {
    check_cpu_float({kHstuAttention, "q", q});
  }
  TORCH_CHECK_VALUE(q.size(1) > 0 && q.size(2) > 0, kHstuAttention, ": q is ", q.sizes(),
                    "; expected at least one head and head_dim 1");
  for (const Arg& arg : {Arg{kHstuAttention, "k", k}, Arg{kHstuAttention, "v", v}}) {
    check_rank(arg, 3, "[Tk, H, d]");
    check_like(arg, {kHstuAttention, "q", q});
    TORCH_CHECK_VALUE(arg.tensor.size(1) == q.size(1), label(arg), " is ", arg.tensor.sizes(),
                      " but q is ", q.sizes(), "; the number of heads must match");
    TORCH_CHECK_VALUE(arg.tensor.size(2) == q.size(2), label(arg), " is ", arg.tensor.sizes(),
                      " but q is ", q.sizes(), "; head_dim must match");
  }
  TORCH_CHECK_VALUE(k.size(0) == v.size(0), kHstuAttention, ": v is ", v.sizes(), " but k is ",
                    k.sizes(), "; their rows must match");
}

void check_options(const HstuAttentionOptions& options) {
  const auto at_least = [](const char* name, const c10::SymInt& value, int64_t least) {
    TORCH_CHECK_VALUE(value >= least, kHstuAttention, ": ", name, " is ", value, "; expected ",
                      least, " or more");
  };
  at_least("scaling_seqlen", options.scaling_seqlen, 1);
  at_least("target_group_size", options.target_group_size, 1);
  at_least("max_attn_len", options.max_attn_len, 0);
  at_least("min_full_attn_seq_len", options.min_full_attn_seq_len, 0);
  at_least("max_seqlen", options.max_seqlen, 0);
}

// An optional int64 vector, contiguous; undefined if absent.
Tensor checked_integers(const char* name, const OptionalTensor& values, const Tensor& q,
                        int64_t size, const char* why) {
  if (!values || !values->defined()) return {};
  const Arg arg{kHstuAttention, name, *values};
  TORCH_CHECK_VALUE(values->device() == q.device(), label(arg), " is on ", values->device(),
                    " but q is on ", q.device(), "; all arguments must be on one device");
  check_int64(arg);
  check_sizes(arg, {size}, why);
  return values->contiguous();
}

// An optional vector of weights in q's dtype, or float32 with a 16-bit q. Returned as kernels
// take it: float32 on a GPU.
Tensor checked_bias(const char* name, const OptionalTensor& values, const Tensor& q) {
  if (!values || !values->defined()) return {};
  const Arg arg{kHstuAttention, name, *values};
  check_rank(arg, 1, name[0] == 'p' ? "[2N - 1]" : "[buckets]");
  if (values->scalar_type() != at::kFloat || !q.is_cuda())
    check_like(arg, {kHstuAttention, "q", q});
  check_on(arg, q.device());
  TORCH_CHECK_VALUE(values->numel() > 0, label(arg), " is empty; pass none for no bias");
  return values->detach().to(sum_type(q.scalar_type())).contiguous();
}

// Whether the CUDA kernels support it.
bool cuda_takes([[maybe_unused]] const Tensor& q, [[maybe_unused]] int64_t batch) {
#ifdef SEQFUSE_HAS_CUDA
  return q.is_cuda() && hstu_attention_cuda_takes(batch, q.size(2), dtype_of(q));
#else
  return false;
#endif
}

// Checks offsets and counts on a GPU for attention by matrix products; the attention kernels check
// them themselves.
void check_on_gpu([[maybe_unused]] const Tensor& q,
                  [[maybe_unused]] const HstuAttentionParams& params) {
#ifdef SEQFUSE_HAS_CUDA
  if (cuda_takes(q, params.batch)) return;
  const DeviceGuard guard(q);
  C10_CUDA_CHECK(hstu_attention_check_cuda(params, c10::cuda::getCurrentCUDAStream()));
#endif
}

// The longest sequence of keys: computed on the CPU; on a GPU the caller's value, since reading
// offsets would synchronise.
int64_t check_sequences(const HstuAttentionInputs& in) {
  const HstuAttentionParams p = params_of(in);
  TORCH_CHECK_VALUE(in.k_offsets.numel() == in.q_offsets.numel(), kHstuAttention,
                    ": k_offsets has ", in.k_offsets.numel(), " elements but q_offsets has ",
                    in.q_offsets.numel(), "; both need one more than there are sequences");
  if (in.q.is_cuda()) {
    TORCH_CHECK_VALUE(in.max_seqlen > 0 || in.k.size(0) == 0, kHstuAttention, ": max_seqlen is ",
                      in.max_seqlen,
                      "; on a GPU it must be given, at least the longest sequence of keys");
    check_on_gpu(in.q, p);
    return in.max_seqlen;
  }
  int64_t longest = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t queries = p.q_offsets[b + 1] - p.q_offsets[b];
    const int64_t keys = p.k_offsets[b + 1] - p.k_offsets[b];
    TORCH_CHECK_VALUE(queries <= keys, kHstuAttention, ": sequence ", b, " has ", queries,
                      " queries but ", keys, " keys; queries are the last positions of the keys");
    const int64_t contexts = p.num_contexts ? p.num_contexts[b] : 0;
    const int64_t targets = p.num_targets ? p.num_targets[b] : 0;
    TORCH_CHECK_VALUE(contexts >= 0 && targets >= 0 && contexts + targets <= keys, kHstuAttention,
                      ": sequence ", b, " has ", contexts, " contexts and ", targets,
                      " targets in ", keys, " keys; expected two counts that fit");
    TORCH_CHECK_VALUE(in.max_seqlen == 0 || keys <= in.max_seqlen, kHstuAttention,
                      ": max_seqlen is ", in.max_seqlen, " but sequence ", b, " has ", keys,
                      " keys; expected at least the longest, or 0 on the CPU");
    longest = std::max(longest, keys);
  }
  return longest;
}

void check_biases(const HstuAttentionInputs& in, int64_t longest) {
  const HstuAttentionParams p = params_of(in);
  if (p.position_bias) {
    TORCH_CHECK_VALUE(p.position_bias_size % 2 == 1, kHstuAttention, ": position_bias has ",
                      p.position_bias_size, " elements; expected 2N - 1, an odd number");
    TORCH_CHECK_VALUE((p.position_bias_size + 1) / 2 >= longest, kHstuAttention,
                      ": position_bias has ", p.position_bias_size, " elements, for sequences of ",
                      (p.position_bias_size + 1) / 2, "; the longest here has ", longest,
                      ": expected at least ", 2 * longest - 1);
  }
  TORCH_CHECK_VALUE(!in.time_bias.defined() || in.timestamps.defined(), kHstuAttention,
                    ": time_bias was given without timestamps; both are needed");
}

}  // namespace

HstuAttentionInputs checked_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& q_offsets, const Tensor& k_offsets,
                                             const HstuAttentionOptions& options) {
  check_qkv(q, k, v);
  check_options(options);
  const int64_t batch = q_offsets.numel() - 1;
  const bool int32_offsets = q_offsets.scalar_type() == at::kInt &&
                             k_offsets.scalar_type() == at::kInt && cuda_takes(q, batch);
  const auto offsets = [&](const char* name, const Tensor& values, const char* of,
                           const Tensor& rows) {
    return checked_offsets({kHstuAttention, name, values}, rows.size(0), of, q.device(),
                           int32_offsets);
  };
  const HstuAttentionInputs in{
      .q = with_unit_last_stride(q.detach()),
      .k = with_unit_last_stride(k.detach()),
      .v = with_unit_last_stride(v.detach()),
      .q_offsets = offsets("q_offsets", q_offsets, "q", q),
      .k_offsets = offsets("k_offsets", k_offsets, "k", k),
      .num_contexts =
          checked_integers("num_contexts", options.num_contexts, q, batch, "one for each sequence"),
      .num_targets =
          checked_integers("num_targets", options.num_targets, q, batch, "one for each sequence"),
      .position_bias = checked_bias("position_bias", options.position_bias, q),
      .time_bias = checked_bias("time_bias", options.time_bias, q),
      .timestamps =
          checked_integers("timestamps", options.timestamps, q, k.size(0), "the rows of k"),
      .request_times = checked_integers("request_times", options.request_times, q, batch,
                                        "one for each sequence"),
      .alpha = options.alpha,
      .scaling_seqlen = options.scaling_seqlen.expect_int(),
      .mask = mask_of(options),
      .max_seqlen = std::min(options.max_seqlen.expect_int(), k.size(0))};
  check_biases(in, check_sequences(in));
  return in;
}

bool has_attention_kernel(const HstuAttentionInputs& in) {
  return in.q.is_cpu() || cuda_takes(in.q, in.q_offsets.numel() - 1);
}

void attention_into(const HstuAttentionInputs& in, const Tensor& out) {
  const DeviceGuard guard(in.q);
  HstuAttentionParams params = params_of(in);
  params.out = heads_of(out);
  run_attention(params, in.q);
}

std::pair<Tensor, Tensor> attention_gradients_into(const HstuAttentionInputs& in,
                                                   const Tensor& dout, const Tensor& dq,
                                                   const Tensor& dk, const Tensor& dv,
                                                   WantedBiases wanted, const BeforeSilu& before) {
  const DeviceGuard guard(in.q);
  HstuAttentionBackwardParams params{.forward = params_of(in),
                                     .dout = heads_of(dout),
                                     .dq = heads_of(dq),
                                     .dk = heads_of(dk),
                                     .dv = heads_of(dv)};
  if (before.q.defined()) {
    params.pre_q = heads_of(before.q);
    params.pre_k = heads_of(before.k);
    params.pre_v = heads_of(before.v);
    const auto total = [](const Tensor& sums) {
      return sums.defined() ? sums.mutable_data_ptr<float>() : nullptr;
    };
    params.total_dq = total(before.total_dq);
    params.total_dk = total(before.total_dk);
    params.total_dv = total(before.total_dv);
  }
  const auto gradient_of = [](const Tensor& bias, bool is_wanted, void*& data) {
    if (!bias.defined() || !is_wanted) return Tensor();
    Tensor gradient = at::empty_like(bias);
    data = gradient.mutable_data_ptr();
    return gradient;
  };
  std::pair<Tensor, Tensor> gradients{
      gradient_of(in.position_bias, wanted[0], params.d_position_bias),
      gradient_of(in.time_bias, wanted[1], params.d_time_bias)};
  run_attention_backward(params, in.q);
  return gradients;
}

}  // namespace seqfuse::ops
