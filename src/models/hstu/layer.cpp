#include "models/hstu/layer.h"

#include <cmath>

namespace seqfuse::models::hstu {
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
  options.recompute_input_layernorm = network.recompute_input_layernorm;
  options.recompute_input_silu = network.recompute_input_silu;
  if (network.architecture == config::Architecture::hstu_research) {
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
  ops::HstuLayerOptions options{
      .heads = options_.num_heads,
      .eps = options_.norm_epsilon,
      .dropout = is_training() ? options_.dropout : 0,
      .seed = dropout_seed,
      .recompute_input_layernorm = options_.recompute_input_layernorm,
      .recompute_input_silu = options_.recompute_input_silu,
      .attention = {.alpha = options_.alpha,
                    .scaling_seqlen = options_.scaling_seqlen,
                    .target_group_size = options_.target_group_size,
                    .max_attn_len = options_.max_attn_len,
                    .min_full_attn_seq_len = options_.min_full_attn_seq_len,
                    .max_seqlen = sequences.max_seqlen,
                    .num_contexts = sequences.num_contexts,
                    .num_targets = sequences.num_targets}};
  if (position_bias_.defined()) options.attention.position_bias = position_bias_;
  if (time_bias_.defined()) {
    options.attention.time_bias = time_bias_;
    options.attention.timestamps = sequences.timestamps;
    options.attention.request_times = sequences.request_times;
  }
  const auto if_any = [](const at::Tensor& weight) {
    return weight.defined() ? ops::OptionalTensor(weight) : std::nullopt;
  };
  return ops::hstu_layer(x,
                         {.input_norm_weight = if_any(input_norm_weight_),
                          .input_norm_bias = if_any(input_norm_bias_),
                          .uvqk = uvqk_weight_,
                          .uvqk_bias = if_any(uvqk_bias_),
                          .output_norm_weight = if_any(output_norm_weight_),
                          .output_norm_bias = if_any(output_norm_bias_),
                          .output = output_weight_,
                          .output_bias = if_any(output_bias_)},
                         sequences.offsets, options);
}

}  // namespace seqfuse::models::hstu
