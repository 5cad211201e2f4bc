// Small random GPT-NeoX models: in memory, as files, and for the oracle.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "models/gpt_neox/model.h"
#include "tests/oracles/gpt_neox.h"

namespace seqfuse::test {

using TensorMap = std::map<std::string, at::Tensor>;

struct TinyModel {
  int64_t vocab_size = 41, heads = 2, head_dim = 8, inner = 24, layers = 2;
  double rotary_share = 0.5, rotary_base = 10000, eps = 1e-5;
  bool parallel = true, attention_bias = true, tied = false;
  std::string hidden_act = "gelu";

  int64_t hidden() const { return heads * head_dim; }

  // config.json, in the old form or the new one.
  nlohmann::json config(bool old_form = false) const {
    nlohmann::json json = {{"model_type", "gpt_neox"},
                           {"vocab_size", vocab_size},
                           {"hidden_size", hidden()},
                           {"intermediate_size", inner},
                           {"num_hidden_layers", layers},
                           {"num_attention_heads", heads},
                           {"max_position_embeddings", 64},
                           {"hidden_act", hidden_act},
                           {"layer_norm_eps", eps},
                           {"use_parallel_residual", parallel},
                           {"attention_bias", attention_bias},
                           {"tie_word_embeddings", tied},
                           {"eos_token_id", 0}};
    if (old_form) {
      json["rotary_pct"] = rotary_share;
      json["rotary_emb_base"] = rotary_base;
    } else {
      json["rope_parameters"] = {{"rope_type", "default"},
                                 {"partial_rotary_factor", rotary_share},
                                 {"rope_theta", rotary_base}};
    }
    return json;
  }

  // Large enough that attention and logits are far from uniform.
  TensorMap tensors(uint64_t seed = 1) const {
    at::manual_seed(seed);
    const int64_t h = hidden();
    TensorMap tensors;
    const auto weight = [&](const std::string& name, int64_t out, int64_t in) {
      tensors[name] =
          at::randn({out, in}, at::kDouble) * (1.6 / std::sqrt(static_cast<double>(in)));
    };
    const auto norm = [&](const std::string& name) {
      tensors[name + ".weight"] = 1 + 0.2 * at::randn({h}, at::kDouble);
      tensors[name + ".bias"] = 0.2 * at::randn({h}, at::kDouble);
    };
    const auto bias = [&](const std::string& name, int64_t size) {
      tensors[name] = 0.2 * at::randn({size}, at::kDouble);
    };
    weight("gpt_neox.embed_in.weight", vocab_size, h);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string name = "gpt_neox.layers." + std::to_string(layer) + ".";
      norm(name + "input_layernorm");
      norm(name + "post_attention_layernorm");
      weight(name + "attention.query_key_value.weight", 3 * h, h);
      weight(name + "attention.dense.weight", h, h);
      if (attention_bias) {
        bias(name + "attention.query_key_value.bias", 3 * h);
        bias(name + "attention.dense.bias", h);
      }
      weight(name + "mlp.dense_h_to_4h.weight", inner, h);
      bias(name + "mlp.dense_h_to_4h.bias", inner);
      weight(name + "mlp.dense_4h_to_h.weight", h, inner);
      bias(name + "mlp.dense_4h_to_h.bias", h);
    }
    norm("gpt_neox.final_layer_norm");
    if (!tied) weight("embed_out.weight", vocab_size, h);
    return tensors;
  }

  // The Config that load_config reads from config().
  models::gpt_neox::Config model_config() const {
    using models::gpt_neox::Activation;
    models::gpt_neox::Config config;
    config.vocab_size = vocab_size;
    config.hidden_size = hidden();
    config.intermediate_size = inner;
    config.num_layers = layers;
    config.num_heads = heads;
    config.max_position_embeddings = 64;
    config.activation = hidden_act == "gelu" ? Activation::gelu : Activation::gelu_tanh;
    config.parallel_residual = parallel;
    config.attention_bias = attention_bias;
    config.tied_output = tied;
    config.layer_norm_eps = eps;
    config.rotary_share = rotary_share;
    config.rotary_base = rotary_base;
    return config;
  }

  oracle::GptNeoxOptions oracle_options() const {
    return {.layers = layers,
            .heads = heads,
            .rotary_dims = static_cast<int64_t>(rotary_share * static_cast<double>(head_dim)),
            .rotary_base = rotary_base,
            .eps = eps,
            .parallel = parallel,
            .tanh_gelu = hidden_act != "gelu",
            .tied = tied};
  }
};

inline void write_json(const std::filesystem::path& file, const nlohmann::json& json) {
  std::ofstream(file) << json.dump(1);
}

inline void write_tensors(const std::filesystem::path& file, const TensorMap& tensors) {
  std::map<std::string, io::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const auto type = tensor.scalar_type();
    const char* dtype = type == at::kDouble  ? "F64"
                        : type == at::kFloat ? "F32"
                        : type == at::kHalf  ? "F16"
                        : type == at::kBool  ? "BOOL"
                                             : "BF16";
    views[name] = {
        dtype, tensor.sizes().vec(),
        std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes())};
  }
  io::write_safetensors(file, views);
}

inline TensorMap converted(TensorMap tensors, at::ScalarType dtype) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(dtype).contiguous();
  return tensors;
}

inline void write_model(const std::filesystem::path& directory, const nlohmann::json& config,
                        const TensorMap& tensors) {
  write_json(directory / "config.json", config);
  write_tensors(directory / "model.safetensors", tensors);
}

// The same in several files with an index; tensors alternate between the files.
inline void write_sharded(const std::filesystem::path& directory, const nlohmann::json& config,
                          const TensorMap& tensors, int shards) {
  write_json(directory / "config.json", config);
  nlohmann::json map = nlohmann::json::object();
  std::vector<TensorMap> parts(shards);
  int next = 0;
  for (const auto& [name, tensor] : tensors) {
    const int part = next++ % shards;
    parts[part][name] = tensor;
    map[name] = "part-" + std::to_string(part) + ".safetensors";
  }
  for (int part = 0; part < shards; ++part) {
    write_tensors(directory / ("part-" + std::to_string(part) + ".safetensors"), parts[part]);
  }
  write_json(directory / "model.safetensors.index.json", {{"weight_map", map}});
}

inline std::vector<int64_t> some_ids(int64_t count, int64_t vocab_size, int64_t first = 3) {
  std::vector<int64_t> ids;
  int64_t id = first;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(id % vocab_size);
    id = id * 7 + 11 + i;
    id %= 1000003;
  }
  return ids;
}

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace seqfuse::test
