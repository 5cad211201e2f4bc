#include "models/gpt_neox/model.h"

#include <utility>

#include "base/error.h"

namespace seqfuse::models::gpt_neox {
using at::Tensor;

Model::Model(const Config& config, Weights weights)
    : config_(config),
      weights_(std::move(weights)),
      rotary_(config.rotary_dims(), config.rotary_base, weights_.embedding.device()) {}

Model Model::load(const std::filesystem::path& directory, at::ScalarType dtype, at::Device device) {
  const Config config = load_config(directory);
  return {config, load_weights(config, directory, dtype, device)};
}

kv_cache::Shape Model::cache_shape() const {
  return {.layers = config_.num_layers, .heads = config_.num_heads, .head_dim = config_.head_dim()};
}

kv_cache::Cache Model::make_cache(const kv_cache::Rule& rule, int64_t rows) const {
  return {rule, cache_shape(), rotary_, rows, weights_.embedding.options()};
}

Tensor Model::attention(const LayerWeights& weights, int64_t layer, const Tensor& x,
                        kv_cache::Cache& cache) const {
  const int64_t rows = x.size(0), tokens = x.size(1), dim = config_.head_dim();
  const Tensor qkv = at::linear(x, weights.qkv_weight, weights.qkv_bias)
                         .view({rows, tokens, config_.num_heads, 3 * dim})
                         .transpose(1, 2);  // [rows, heads, tokens, 3 dim]
  const Tensor context = cache.attend(layer, qkv.slice(-1, 0, dim), qkv.slice(-1, dim, 2 * dim),
                                      qkv.slice(-1, 2 * dim, 3 * dim));
  return at::linear(context.transpose(1, 2).reshape({rows, tokens, config_.hidden_size}),
                    weights.out_weight, weights.out_bias);
}

Tensor Model::mlp(const LayerWeights& weights, const Tensor& x) const {
  const char* form = config_.activation == Activation::gelu ? "none" : "tanh";
  const Tensor inner = at::gelu(at::linear(x, weights.up_weight, weights.up_bias), form);
  return at::linear(inner, weights.down_weight, weights.down_bias);
}

Tensor Model::states(const Tensor& ids, kv_cache::Cache& cache) const {
  const at::NoGradGuard no_grad;
  const auto norm = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(x, {config_.hidden_size}, weight, bias, config_.layer_norm_eps);
  };
  Tensor h = at::embedding(weights_.embedding, ids);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const LayerWeights& w = weights_.layers[layer];
    const Tensor attended = attention(w, layer, norm(h, w.norm1_weight, w.norm1_bias), cache);
    if (config_.parallel_residual) {
      h = (mlp(w, norm(h, w.norm2_weight, w.norm2_bias)) + attended) + h;
    } else {
      const Tensor r = attended + h;
      h = mlp(w, norm(r, w.norm2_weight, w.norm2_bias)) + r;
    }
  }
  cache.end();
  return norm(h, weights_.norm_weight, weights_.norm_bias);
}

Tensor Model::logits(const Tensor& states) const {
  const at::NoGradGuard no_grad;
  return at::linear(states, weights_.output);
}

}  // namespace seqfuse::models::gpt_neox
