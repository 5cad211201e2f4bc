#include "models/gpt_neox/model.h"

#include <utility>

#include "base/error.h"
#include "base/trace_range.h"

namespace seqfuse::models::gpt_neox {
using at::Tensor;

Model::Model(const Config& config, Weights weights)
    : config_(config),
      weights_(std::move(weights)),
      rotary_(config.rotary_dims(), config.rotary_base, weights_.embedding.device()) {}

Model Model::load(const std::filesystem::path& directory, at::ScalarType dtype, at::Device device,
                  const Storage& storage) {
  const Config config = load_config(directory);
  return {config, load_weights(config, directory, dtype, device, storage)};
}

kv_cache::Shape Model::cache_shape() const {
  return {.layers = config_.num_layers, .heads = config_.num_heads, .head_dim = config_.head_dim()};
}

kv_cache::Cache Model::make_cache(const kv_cache::Rule& rule, int64_t rows) const {
  return {rule, cache_shape(), rotary_, rows, weights_.norm_weight.options()};
}

Tensor Model::attention(const LayerWeights& weights, int64_t layer, const Tensor& x,
                        const Tensor& residual, kv_cache::Cache& cache) const {
  const TraceRange range("attention");
  const int64_t rows = x.size(0), tokens = x.size(1), dim = config_.head_dim();
  const Tensor qkv = weights.qkv(x)
                         .view({rows, tokens, config_.num_heads, 3 * dim})
                         .transpose(1, 2);  // [rows, heads, tokens, 3 dim]
  const Tensor context = cache.attend(layer, qkv.slice(-1, 0, dim), qkv.slice(-1, dim, 2 * dim),
                                      qkv.slice(-1, 2 * dim, 3 * dim));
  return weights.out(context.transpose(1, 2).reshape({rows, tokens, config_.hidden_size}),
                     LinearActivation::none, residual);
}

Tensor Model::mlp(const LayerWeights& weights, const Tensor& x, const Tensor& residual) const {
  const TraceRange range("MLP");
  const auto activation = config_.activation == Activation::gelu ? LinearActivation::gelu_erf
                                                                 : LinearActivation::gelu_tanh;
  return weights.down(weights.up(x, activation), LinearActivation::none, residual);
}

Tensor Model::states(const Tensor& ids, kv_cache::Cache& cache,
                     std::vector<Tensor>* before_layers) const {
  const at::NoGradGuard no_grad;
  const auto norm = [&](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return at::layer_norm(x, {config_.hidden_size}, weight, bias, config_.layer_norm_eps);
  };
  Tensor h = at::embedding(weights_.embedding, ids).to(dtype());
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const LayerWeights& w = weights_.layers[layer];
    if (before_layers) before_layers->push_back(h);
    const Tensor n1 = norm(h, w.norm1_weight, w.norm1_bias);
    if (config_.parallel_residual) {
      const Tensor attended = attention(w, layer, n1, {}, cache);
      h = mlp(w, norm(h, w.norm2_weight, w.norm2_bias), attended) + h;
    } else {
      const Tensor r = attention(w, layer, n1, h, cache);
      h = mlp(w, norm(r, w.norm2_weight, w.norm2_bias), r);
    }
  }
  cache.end();
  return norm(h, weights_.norm_weight, weights_.norm_bias);
}

Tensor Model::logits(const Tensor& states) const {
  const at::NoGradGuard no_grad;
  return weights_.output(states);
}

}  // namespace seqfuse::models::gpt_neox
