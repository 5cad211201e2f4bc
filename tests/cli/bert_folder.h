// A small BERT whose vectors are known: its layers add nothing, so that the state of a token is the
// normalised row of its word.
#pragma once

#include <cmath>
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

class BertFolder {
 public:
  static constexpr int64_t kHidden = 8, kInner = 4, kPositions = 12;

  explicit BertFolder(int64_t vocab) : vocab_(vocab) {
    add("embeddings.word_embeddings.weight", {vocab, kHidden}, 0);
    add("embeddings.position_embeddings.weight", {kPositions, kHidden}, 0);
    add("embeddings.token_type_embeddings.weight", {2, kHidden}, 0);
    add_norm("embeddings.LayerNorm");
    const std::string layer = "encoder.layer.0.";
    for (const char* part : {"query", "key", "value"}) {
      add_linear(layer + "attention.self." + part, kHidden, kHidden);
    }
    add_linear(layer + "attention.output.dense", kHidden, kHidden);
    add_norm(layer + "attention.output.LayerNorm");
    add_linear(layer + "intermediate.dense", kInner, kHidden);
    add_linear(layer + "output.dense", kHidden, kInner);
    add_norm(layer + "output.LayerNorm");
    Random random(7);
    for (float& value : tensors_.at("embeddings.word_embeddings.weight").values) {
      value = static_cast<float>(random.normal());
    }
  }

  // A pooler and a classifier that pass on the first numbers of the first token's state, times weight.
  void add_classifier(int64_t classes, float weight) {
    add_linear("pooler.dense", kHidden, kHidden);
    add_linear("classifier", classes, kHidden);
    for (int64_t i = 0; i < kHidden; ++i) {
      tensors_.at("pooler.dense.weight").values[static_cast<size_t>(i * kHidden + i)] = 1;
    }
    for (int64_t i = 0; i < classes; ++i) {
      tensors_.at("classifier.weight").values[static_cast<size_t>(i * kHidden + i)] = weight;
    }
  }

  // changes: of config.json.
  void write(const std::filesystem::path& folder, const nlohmann::json& changes = {}) const {
    nlohmann::json config = {{"model_type", "bert"},
                             {"vocab_size", vocab_},
                             {"hidden_size", kHidden},
                             {"intermediate_size", kInner},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 2},
                             {"hidden_act", "gelu"},
                             {"type_vocab_size", 2},
                             {"max_position_embeddings", kPositions}};
    if (changes.is_object()) config.update(changes);
    std::ofstream(folder / "config.json") << config;
    std::map<std::string, io::TensorView> views;
    for (const auto& [name, tensor] : tensors_) {
      views[name] = {"F32", tensor.shape, std::as_bytes(std::span(tensor.values))};
    }
    io::write_safetensors(folder / "model.safetensors", views);
  }

  // The mean of the states of some tokens, to about 1e-6.
  std::vector<double> mean_state(const std::vector<int64_t>& ids) const {
    std::vector<double> mean(kHidden, 0);
    const float* words = tensors_.at("embeddings.word_embeddings.weight").values.data();
    for (const int64_t id : ids) {
      std::vector<double> row(words + id * kHidden, words + (id + 1) * kHidden);
      double center = 0, variance = 0;
      for (const double v : row) center += v / kHidden;
      for (const double v : row) variance += (v - center) * (v - center) / kHidden;
      for (size_t i = 0; i < row.size(); ++i) {
        mean[i] += (row[i] - center) / std::sqrt(variance) / static_cast<double>(ids.size());
      }
    }
    return mean;
  }

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  void add(const std::string& name, const std::vector<int64_t>& shape, float value) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    tensors_[name] = {shape, std::vector<float>(count, value)};
  }
  void add_norm(const std::string& name) {
    add(name + ".weight", {kHidden}, 1);
    add(name + ".bias", {kHidden}, 0);
  }
  void add_linear(const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in}, 0);
    add(name + ".bias", {out}, 0);
  }

  int64_t vocab_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace seqfuse
