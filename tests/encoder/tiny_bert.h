// Small random BERTs: in memory, as files, and for the oracle.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"
#include "models/bert/model.h"
#include "tests/oracles/bert.h"

namespace seqfuse::test {

using models::TensorMap;

struct TinyBert {
  int64_t vocab_size = 43, heads = 2, head_dim = 8, inner = 24, layers = 2, positions = 200;
  std::string hidden_act = "gelu";
  double eps = 1e-12;

  int64_t hidden() const { return heads * head_dim; }

  nlohmann::json config() const {
    return {{"model_type", "bert"},
            {"vocab_size", vocab_size},
            {"hidden_size", hidden()},
            {"intermediate_size", inner},
            {"num_hidden_layers", layers},
            {"num_attention_heads", heads},
            {"max_position_embeddings", positions},
            {"type_vocab_size", 2},
            {"hidden_act", hidden_act},
            {"layer_norm_eps", eps}};
  }

  // The Config that load_config reads from config().
  models::bert::Config model_config() const {
    using models::bert::Activation;
    models::bert::Config config;
    config.vocab_size = vocab_size;
    config.hidden_size = hidden();
    config.intermediate_size = inner;
    config.num_layers = layers;
    config.num_heads = heads;
    config.max_position_embeddings = positions;
    config.activation = hidden_act == "gelu"   ? Activation::gelu_erf
                        : hidden_act == "relu" ? Activation::relu
                                               : Activation::gelu_tanh;
    config.layer_norm_eps = eps;
    return config;
  }

  // float64, without "bert.". Large enough that attention is far from uniform.
  TensorMap tensors(uint64_t seed = 1) const {
    at::manual_seed(seed);
    TensorMap tensors;
    const auto table = [&](const std::string& name, int64_t rows) {
      tensors["embeddings." + name + ".weight"] = at::randn({rows, hidden()}, at::kDouble);
    };
    const auto norm = [&](const std::string& name) {
      tensors[name + ".weight"] = 1 + 0.2 * at::randn({hidden()}, at::kDouble);
      tensors[name + ".bias"] = 0.2 * at::randn({hidden()}, at::kDouble);
    };
    const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
      tensors[name + ".weight"] =
          at::randn({out, in}, at::kDouble) * (1.6 / std::sqrt(static_cast<double>(in)));
      tensors[name + ".bias"] = 0.2 * at::randn({out}, at::kDouble);
    };
    table("word_embeddings", vocab_size);
    table("position_embeddings", positions);
    table("token_type_embeddings", 2);
    norm("embeddings.LayerNorm");
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string name = "encoder.layer." + std::to_string(layer) + ".";
      for (const char* part : {"query", "key", "value"}) {
        linear(name + "attention.self." + part, hidden(), hidden());
      }
      linear(name + "attention.output.dense", hidden(), hidden());
      norm(name + "attention.output.LayerNorm");
      linear(name + "intermediate.dense", inner, hidden());
      linear(name + "output.dense", hidden(), inner);
      norm(name + "output.LayerNorm");
    }
    return tensors;
  }

  models::bert::Model model(at::ScalarType dtype, at::Device device = at::kCPU) const {
    const auto config = model_config();
    return {config, models::bert::make_weights(config, tensors(), dtype, device, "tiny")};
  }

  oracle::Bert oracle() const { return {layers, heads, eps, hidden_act, tensors()}; }

  // config.json and model.safetensors, float32, with "bert." before each name.
  void write(const std::filesystem::path& folder) const {
    std::ofstream(folder / "config.json") << config().dump(1);
    TensorMap kept;
    std::map<std::string, io::TensorView> views;
    for (const auto& [name, tensor] : tensors()) {
      const at::Tensor& t = kept["bert." + name] = tensor.to(at::kFloat).contiguous();
      views["bert." + name] = {
          "F32",
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.const_data_ptr()), static_cast<size_t>(t.nbytes())}};
    }
    io::write_safetensors(folder / "model.safetensors", views);
  }
};

// Sequences of given lengths with random ids and types.
struct TinyBatch {
  std::vector<int64_t> lengths;
  std::vector<std::vector<int64_t>> ids, types;

  TinyBatch(std::vector<int64_t> of_lengths, int64_t vocab_size, uint64_t seed = 2)
      : lengths(std::move(of_lengths)) {
    at::manual_seed(seed);
    const auto random = [](int64_t below, int64_t count) {
      const at::Tensor values = at::randint(below, {count}, at::kLong);
      return std::vector<int64_t>(values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + count);
    };
    for (const int64_t length : lengths) {
      ids.push_back(random(vocab_size, length));
      types.push_back(random(2, length));
    }
  }

  models::bert::Tokens jagged(at::Device device = at::kCPU) const {
    return {joined(ids).to(device), joined(types).to(device),
            models::bert::positions_of(lengths, device)};
  }

  // Padded with ids, types and positions of 1.
  models::bert::Tokens padded(int64_t length) const {
    std::vector<std::vector<int64_t>> i = ids, t = types, p;
    for (size_t b = 0; b < lengths.size(); ++b) {
      p.emplace_back();
      for (int64_t at = 0; at < lengths[b]; ++at) p[b].push_back(at);
      for (auto* rows : {&i, &t, &p}) (*rows)[b].resize(static_cast<size_t>(length), 1);
    }
    return {joined(i), joined(t), joined(p)};
  }

  // The rows of the oracle, one sequence after the other.
  at::Tensor expected(const oracle::Bert& bert, const models::bert::SequenceMask& mask) const {
    std::vector<at::Tensor> parts;
    for (size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] == 0) continue;
      const masks::Mask of_length = mask.of_length(lengths[b]);
      parts.push_back(bert.states(ids[b], types[b], [&](int64_t q, int64_t k) {
        return masks::allowed(of_length.rule(), 0, q, k);
      }));
    }
    return at::cat(parts);
  }

 private:
  static at::Tensor joined(const std::vector<std::vector<int64_t>>& rows) {
    std::vector<int64_t> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return at::tensor(all, at::kLong);
  }
};

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace seqfuse::test
