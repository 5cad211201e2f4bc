// Small GPT-NeoX folders for tests of the verbs: random weights, or a chain of tokens that is known.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "io/safetensors.h"

namespace seqfuse {

class LanguageModel {
 public:
  int64_t vocab = 50, hidden = 16, inner = 32, layers = 2, heads = 2;
  nlohmann::json more_config = nlohmann::json::object();

  // All values are drawn anew.
  void randomise() {
    make();
    Random random(7);
    for (auto& [name, tensor] : tensors_) {
      for (float& value : tensor.values) value = 0.5F * static_cast<float>(random.normal());
    }
  }

  // The best token after chain[i] is chain[i + 1], after the last it is the first; no token comes
  // twice. hidden must be at least vocab: a token is a direction of its own, and layers add nothing.
  void follow(const std::vector<int64_t>& chain) {
    make();
    for (float& value : tensors_.at("gpt_neox.final_layer_norm.weight").values) value = 1;
    for (int64_t id = 0; id < vocab; ++id) {
      tensors_.at("gpt_neox.embed_in.weight").values[id * hidden + id] = 1;
    }
    for (size_t i = 0; i < chain.size(); ++i) {
      const int64_t next = chain[(i + 1) % chain.size()];
      tensors_.at("embed_out.weight").values[next * hidden + chain[i]] = 1;
    }
  }

  void write(const std::filesystem::path& folder) const {
    nlohmann::json config = {{"model_type", "gpt_neox"},      {"vocab_size", vocab},
                             {"hidden_size", hidden},         {"intermediate_size", inner},
                             {"num_hidden_layers", layers},   {"num_attention_heads", heads},
                             {"max_position_embeddings", 64}, {"rotary_pct", 0.5}};
    config.update(more_config);
    std::ofstream(folder / "config.json") << config;
    std::map<std::string, io::TensorView> views;
    for (const auto& [name, tensor] : tensors_) {
      views[name] = {"F32", tensor.shape, std::as_bytes(std::span(tensor.values))};
    }
    io::write_safetensors(folder / "model.safetensors", views);
  }

 private:
  struct Values {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  void make() {
    tensors_.clear();
    add("gpt_neox.embed_in.weight", {vocab, hidden});
    add("embed_out.weight", {vocab, hidden});
    add_pair("gpt_neox.final_layer_norm", {hidden});
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string name = "gpt_neox.layers." + std::to_string(layer) + ".";
      add_pair(name + "input_layernorm", {hidden});
      add_pair(name + "post_attention_layernorm", {hidden});
      add_pair(name + "attention.query_key_value", {3 * hidden, hidden});
      add_pair(name + "attention.dense", {hidden, hidden});
      add_pair(name + "mlp.dense_h_to_4h", {inner, hidden});
      add_pair(name + "mlp.dense_4h_to_h", {hidden, inner});
    }
  }
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    tensors_[name] = {shape, std::vector<float>(count, 0.0F)};
  }
  void add_pair(const std::string& name, const std::vector<int64_t>& shape) {
    add(name + ".weight", shape);
    add(name + ".bias", {shape[0]});
  }

  std::map<std::string, Values> tensors_;
};

}  // namespace seqfuse
