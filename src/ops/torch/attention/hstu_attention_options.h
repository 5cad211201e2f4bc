// The options of HSTU attention as separate operator arguments, in the order of a schema, and in
// the form that autograd saves.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>

#include <span>
#include <string>
#include <vector>

#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {

inline const std::string& attention_schema() {
  static const std::string schema =
      "float alpha, SymInt scaling_seqlen, bool causal=True, int target_group_size=1, "
      "int max_attn_len=0, int min_full_attn_seq_len=0, Tensor? num_contexts=None, "
      "Tensor? num_targets=None, Tensor? position_bias=None, Tensor? time_bias=None, "
      "Tensor? timestamps=None, Tensor? request_times=None, SymInt max_seqlen=0";
  return schema;
}

// The signature of a function that takes them; Before: arguments before them.
template <class Result, class... Before>
using AttentionSignature = Result(Before..., double, c10::SymInt, bool, int64_t, int64_t, int64_t,
                                  const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&,
                                  const OptionalTensor&, const OptionalTensor&, c10::SymInt);

inline HstuAttentionOptions attention_options(
    double alpha, c10::SymInt scaling_seqlen, bool causal, int64_t target_group_size,
    int64_t max_attn_len, int64_t min_full_attn_seq_len, const OptionalTensor& num_contexts,
    const OptionalTensor& num_targets, const OptionalTensor& position_bias,
    const OptionalTensor& time_bias, const OptionalTensor& timestamps,
    const OptionalTensor& request_times, c10::SymInt max_seqlen) {
  return {.alpha = alpha,
          .scaling_seqlen = std::move(scaling_seqlen),
          .causal = causal,
          .target_group_size = target_group_size,
          .max_attn_len = max_attn_len,
          .min_full_attn_seq_len = min_full_attn_seq_len,
          .max_seqlen = std::move(max_seqlen),
          .num_contexts = num_contexts,
          .num_targets = num_targets,
          .position_bias = position_bias,
          .time_bias = time_bias,
          .timestamps = timestamps,
          .request_times = request_times};
}

// Calls op with before and the options.
template <class Op, class... Before>
auto call_with(const Op& op, const HstuAttentionOptions& o, const Before&... before) {
  return op.call(before..., o.alpha, o.scaling_seqlen, o.causal, o.target_group_size,
                 o.max_attn_len, o.min_full_attn_seq_len, o.num_contexts, o.num_targets,
                 o.position_bias, o.time_bias, o.timestamps, o.request_times, o.max_seqlen);
}

// For save_for_backward: the biases, then the integers; undefined if absent.
constexpr size_t kAttentionTensors = 6;
inline std::array<Tensor, kAttentionTensors> tensors_of(const HstuAttentionOptions& o) {
  return {o.position_bias.value_or(Tensor()), o.time_bias.value_or(Tensor()),
          o.num_contexts.value_or(Tensor()),  o.num_targets.value_or(Tensor()),
          o.timestamps.value_or(Tensor()),    o.request_times.value_or(Tensor())};
}

// Saves the options that are not tensors.
inline void save_options(torch::autograd::AutogradContext* context, const HstuAttentionOptions& o) {
  auto& data = context->saved_data;
  data["alpha"] = o.alpha;
  data["scaling_seqlen"] = o.scaling_seqlen;
  data["mask"] =
      std::vector<int64_t>{o.causal, o.target_group_size, o.max_attn_len, o.min_full_attn_seq_len};
  data["max_seqlen"] = o.max_seqlen;
}

// Restores the options from the saved tensors and values.
inline HstuAttentionOptions saved_options(torch::autograd::AutogradContext* context,
                                          std::span<const Tensor> tensors) {
  auto& data = context->saved_data;
  const auto mask = data["mask"].toIntVector();
  return {.alpha = data["alpha"].toDouble(),
          .scaling_seqlen = data["scaling_seqlen"].toSymInt(),
          .causal = mask[0] != 0,
          .target_group_size = mask[1],
          .max_attn_len = mask[2],
          .min_full_attn_seq_len = mask[3],
          .max_seqlen = data["max_seqlen"].toSymInt(),
          .num_contexts = optional_of(tensors[2]),
          .num_targets = optional_of(tensors[3]),
          .position_bias = optional_of(tensors[0]),
          .time_bias = optional_of(tensors[1]),
          .timestamps = optional_of(tensors[4]),
          .request_times = optional_of(tensors[5])};
}

}  // namespace seqfuse::ops
