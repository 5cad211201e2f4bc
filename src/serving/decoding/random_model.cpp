#include "serving/decoding/random_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::serving {
using at::Tensor;
using models::gpt_neox::Activation;
using models::gpt_neox::Config;
namespace {

struct NamedShape {
  const char* name;
  int64_t layers, hidden, heads, vocabulary;
  Activation activation = Activation::gelu;
};

constexpr NamedShape kShapes[] = {
    {"pythia-70m", 6, 512, 8, 50304},
    {"pythia-160m", 12, 768, 12, 50304},
    {"pythia-410m", 24, 1024, 16, 50304},
    {"pythia-1b", 16, 2048, 8, 50304},
    {"pythia-1.4b", 24, 2048, 16, 50304},
    {"pythia-2.8b", 32, 2560, 32, 50304},
    {"pythia-6.9b", 32, 4096, 32, 50432},
    {"pythia-12b", 36, 5120, 40, 50688},
    {"gpt-neox-20b", 44, 6144, 64, 50432, Activation::gelu_tanh},
};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Config named_shape(const std::string& name) {
  for (const NamedShape& shape : kShapes) {
    if (name != shape.name) continue;
    Config config;
    config.vocab_size = shape.vocabulary;
    config.hidden_size = shape.hidden;
    config.intermediate_size = 4 * shape.hidden;
    config.num_layers = shape.layers;
    config.num_heads = shape.heads;
    config.max_position_embeddings = 2048;
    config.activation = shape.activation;
    return config;
  }
  throw_error<UsageError>("there is no shape '{}'{}; known are {}", name,
                          did_you_mean(name, shape_names()), fmt::join(shape_names(), ", "));
}

std::map<std::string, Tensor> random_tensors(const Config& config, at::ScalarType dtype,
                                             at::Device device) {
  const int64_t h = config.hidden_size, inner = config.intermediate_size;
  const int64_t largest = std::max({config.vocab_size * h, 3 * h * h, inner * h});
  const Tensor values =
      at::empty({largest}, at::TensorOptions(device).dtype(dtype)).uniform_(-0.05, 0.05);
  std::map<std::string, Tensor> tensors;
  const auto add = [&](const std::string& name, int64_t out, int64_t in) {
    tensors[name + ".weight"] = values.narrow(0, 0, out * in).view({out, in});
  };
  const auto add_vector = [&](const std::string& name, int64_t size) {
    tensors[name] = values.narrow(0, 0, size);
  };
  const auto add_norm = [&](const std::string& name) {
    tensors[name + ".weight"] = at::ones({h}, values.options());
    add_vector(name + ".bias", h);
  };
  add("gpt_neox.embed_in", config.vocab_size, h);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string name = fmt::format("gpt_neox.layers.{}.", layer);
    add_norm(name + "input_layernorm");
    add_norm(name + "post_attention_layernorm");
    add(name + "attention.query_key_value", 3 * h, h);
    add(name + "attention.dense", h, h);
    if (config.attention_bias) {
      add_vector(name + "attention.query_key_value.bias", 3 * h);
      add_vector(name + "attention.dense.bias", h);
    }
    add(name + "mlp.dense_h_to_4h", inner, h);
    add_vector(name + "mlp.dense_h_to_4h.bias", inner);
    add(name + "mlp.dense_4h_to_h", h, inner);
    add_vector(name + "mlp.dense_4h_to_h.bias", h);
  }
  add_norm("gpt_neox.final_layer_norm");
  if (!config.tied_output) add("embed_out", config.vocab_size, h);
  return tensors;
}

}  // namespace seqfuse::serving
