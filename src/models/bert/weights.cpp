#include "models/bert/weights.h"

#include <fmt/format.h>

#include <array>

#include "models/bert/named_tensors.h"

namespace seqfuse::models::bert {
using at::Tensor;
namespace {

LayerWeights take_bert_layer(NamedTensors& tensors, const Config& config, int64_t layer) {
  const int64_t h = config.hidden_size, inner = config.intermediate_size;
  const std::string name = fmt::format("encoder.layer.{}.", layer);
  LayerWeights weights;
  std::array<Tensor, 3> matrices, biases;
  for (size_t i = 0; i < 3; ++i) {
    constexpr const char* kParts[] = {"query", "key", "value"};
    tensors.take_linear(name + "attention.self." + kParts[i], h, h, matrices[i], biases[i]);
  }
  weights.gemm0 = at::cat(matrices);
  weights.bias0 = at::cat(biases);
  tensors.take_linear(name + "attention.output.dense", h, h, weights.gemm1, weights.bias1);
  tensors.take_norm(name + "attention.output.LayerNorm", h, weights.norm1_weight,
                    weights.norm1_bias);
  tensors.take_linear(name + "intermediate.dense", inner, h, weights.gemm2, weights.bias2);
  tensors.take_linear(name + "output.dense", h, inner, weights.gemm3, weights.bias3);
  tensors.take_norm(name + "output.LayerNorm", h, weights.norm2_weight, weights.norm2_bias);
  return weights;
}

}  // namespace

Weights make_weights(const Config& config, const TensorMap& tensors, at::ScalarType dtype,
                     at::Device device, const std::string& source) {
  NamedTensors taker(tensors, at::TensorOptions(device).dtype(dtype), source);
  const int64_t h = config.hidden_size;
  Weights weights;
  weights.words = taker.take("embeddings.word_embeddings.weight", {config.vocab_size, h});
  weights.positions =
      taker.take("embeddings.position_embeddings.weight", {config.max_position_embeddings, h});
  weights.types =
      taker.take("embeddings.token_type_embeddings.weight", {config.type_vocab_size, h});
  taker.take_norm("embeddings.LayerNorm", h, weights.norm_weight, weights.norm_bias);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(take_bert_layer(taker, config, layer));
  }
  taker.expect_all_used();
  return weights;
}

Weights load_weights(const Config& config, const std::filesystem::path& directory,
                     at::ScalarType dtype, at::Device device) {
  const TensorFiles files(directory);
  return make_weights(config, files.tensors(), dtype, device, files.source());
}

at::ScalarType stored_dtype(const std::filesystem::path& directory) {
  return TensorFiles(directory).dtype_of("encoder.layer.0.attention.self.query.weight");
}

}  // namespace seqfuse::models::bert
