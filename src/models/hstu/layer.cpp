#include "models/hstu/layer.h"

#include <cmath>

namespace seqfuse::models {
namespace {

// A weight in the dtype of the tokens; none where it is undefined.
ops::OptionalTensor weight_like(const at::Tensor& weight, const at::Tensor& x) {
  return weight.defined() ? ops::OptionalTensor(weight.to(x.scalar_type())) : std::nullopt;
}

}  // namespace

LayerOptions LayerOptions::of(const ModelSpec& spec) {
  const config::NetworkArgs& network = spec.network;
  LayerOptions options;
  options.hidden_size = network.hidden_size;
  options.num_heads = network.num_attention_heads;
  options.head_dim = network.kv_channels;
  options.dropout = network.hidden_dropout;
  options.norm_epsilon = network.norm_epsilon;
  options.scaling_seqlen = spec.scaling_seqlen;
  options.target_group_size = network.target_group_size;
  options.max_attn_len = network.max_attn_len;
  options.min_full_attn_seq_len = network.min_full_attn_seq_len;
  if (network.architecture == "hstu_research") {
    options.affine_norms = false;
    options.uvqk_bias = false;
    options.output_bias = true;
    options.uvqk_std = 0.02;
    options.bias_positions = spec.scaling_seqlen;
    options.bias_time_buckets = network.num_time_buckets + 1;
  } else {
    options.alpha = 1 / std::sqrt(static_cast<double>(network.kv_channels));
  }
  return options;
}

HstuLayer::HstuLayer(const LayerOptions& options, Initializer& init) : options_(options) {
  const int64_t width = options.hidden_size, inner = options.num_heads * options.head_dim;
  if (options.affine_norms) {
    input_norm_weight_ = register_parameter("input_norm_weight", init.ones(width));
    input_norm_bias_ = register_parameter("input_norm_bias", init.zeros(width));
    output_norm_weight_ = register_parameter("output_norm_weight", init.ones(inner));
    output_norm_bias_ = register_parameter("output_norm_bias", init.zeros(inner));
  }
  uvqk_weight_ = register_parameter(
      "uvqk_weight", options.uvqk_std > 0 ? init.normal({width, 4 * inner}, options.uvqk_std)
                                          : init.xavier_uniform(width, 4 * inner));
  if (options.uvqk_bias) uvqk_bias_ = register_parameter("uvqk_bias", init.zeros(4 * inner));
  output_weight_ = register_parameter("output_weight", init.xavier_uniform(inner, width));
  if (options.output_bias) output_bias_ = register_parameter("output_bias", init.zeros(width));
  if (options.bias_positions > 0) {
    position_bias_ =
        register_parameter("position_bias", init.normal({2 * options.bias_positions - 1}, 0.02));
  }
  if (options.bias_time_buckets > 0) {
    time_bias_ = register_parameter("time_bias", init.normal({options.bias_time_buckets}, 0.02));
  }
}

at::Tensor HstuLayer::forward(const at::Tensor& x, const Sequences& sequences,
                              int64_t dropout_seed) {
  const int64_t tokens = x.size(0), inner = options_.num_heads * options_.head_dim;
  const at::Tensor normed =
      ops::layer_norm(x, weight_like(input_norm_weight_, x), weight_like(input_norm_bias_, x),
                      options_.norm_epsilon);
  const at::Tensor uvqk_weight = uvqk_weight_.to(x.scalar_type());
  const ops::OptionalTensor uvqk_bias = weight_like(uvqk_bias_, x);
  const at::Tensor uvqk = at::silu(uvqk_bias ? at::addmm(*uvqk_bias, normed, uvqk_weight)
                                             : at::mm(normed, uvqk_weight));
  // Views of one buffer: the operators take strided rows, so nothing is copied.
  const std::vector<at::Tensor> parts = uvqk.split(inner, 1);
  const auto heads = [&](const at::Tensor& part) {
    return part.view({tokens, options_.num_heads, options_.head_dim});
  };

  ops::HstuAttentionOptions attention;
  attention.alpha = options_.alpha;
  attention.scaling_seqlen = options_.scaling_seqlen;
  attention.target_group_size = options_.target_group_size;
  attention.max_attn_len = options_.max_attn_len;
  attention.min_full_attn_seq_len = options_.min_full_attn_seq_len;
  attention.max_seqlen = sequences.max_seqlen;
  attention.num_contexts = sequences.num_contexts;
  attention.num_targets = sequences.num_targets;
  attention.position_bias = weight_like(position_bias_, x);
  if (time_bias_.defined()) {
    attention.time_bias = weight_like(time_bias_, x);
    attention.timestamps = sequences.timestamps;
    attention.request_times = sequences.request_times;
  }
  const at::Tensor attended = ops::hstu_attention(heads(parts[2]), heads(parts[3]), heads(parts[1]),
                                                  sequences.offsets, sequences.offsets, attention);

  const at::Tensor gated = ops::layer_norm_gate(
      attended.view({tokens, inner}), parts[0], weight_like(output_norm_weight_, x),
      weight_like(output_norm_bias_, x), options_.norm_epsilon,
      is_training() ? options_.dropout : 0, dropout_seed);
  at::Tensor out = at::addmm(x, gated, output_weight_.to(x.scalar_type()));
  return output_bias_.defined() ? out.add_(output_bias_) : out;
}

}  // namespace seqfuse::models
