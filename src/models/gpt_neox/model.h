// GPT-NeoX (Pythia and others): ids to logits, through a key-value cache.
//
// A layer, with h [rows, tokens, H]:
//   n1 = layer_norm1(h), n2 = layer_norm2(h)
//   parallel residual:    h' = (mlp(n2) + attention(n1)) + h
//   sequential residual:  r = attention(n1) + h;  h' = mlp(layer_norm2(r)) + r
//   attention(n) = W_out softmax(rotated q, rotated k) v + b_out,  q, k, v by head = W_qkv n + b_qkv
//   mlp(n) = W_down act(W_up n + b_up) + b_down
// Sums are rounded in the order shown, in the model's dtype: that of its norms and of h. On the CPU,
// linear layers and the attention of a decoding step compute in float32 (linear.h).
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/config.h"
#include "models/gpt_neox/weights.h"

namespace seqfuse::models::gpt_neox {

class Model {
 public:
  Model(const Config& config, Weights weights);

  // directory: a checkpoint. Throws as load_config and load_weights do.
  static Model load(const std::filesystem::path& directory, at::ScalarType dtype, at::Device device,
                    const Storage& storage = {});

  const Config& config() const { return config_; }
  at::ScalarType dtype() const { return weights_.norm_weight.scalar_type(); }
  at::Device device() const { return weights_.embedding.device(); }
  const Weights& weights() const { return weights_; }
  int64_t step_weight_bytes() const { return weights_.step_bytes(); }
  kv_cache::Shape cache_shape() const;

  kv_cache::Cache make_cache(const kv_cache::Rule& rule, int64_t rows) const;

  // Runs one pass (kv_cache/cache.h): the caller begins it, this ends it. ids: int64 [rows, tokens]
  // on the device, all in the vocabulary. Returns the states after the last norm, [rows, tokens,
  // H]. before_layers: gets what goes into each layer, in the same shape; null: not wanted.
  at::Tensor states(const at::Tensor& ids, kv_cache::Cache& cache,
                    std::vector<at::Tensor>* before_layers = nullptr) const;
  // states [..., H] -> [..., V], in the model's dtype.
  at::Tensor logits(const at::Tensor& states) const;

 private:
  // residual: added to the result; undefined: none.
  at::Tensor attention(const LayerWeights& weights, int64_t layer, const at::Tensor& x,
                       const at::Tensor& residual, kv_cache::Cache& cache) const;
  at::Tensor mlp(const LayerWeights& weights, const at::Tensor& x,
                 const at::Tensor& residual) const;

  Config config_;
  Weights weights_;
  kv_cache::Rotary rotary_;
};

}  // namespace seqfuse::models::gpt_neox
