// Small random classifiers of BERT's layout: as graphs, as files, and for the oracle.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "certify/bert_classifier.h"
#include "tests/encoder/tiny_bert.h"

namespace seqfuse::test {

struct TinyClassifier {
  TinyBert bert{
      .vocab_size = 11, .heads = 2, .head_dim = 4, .inner = 10, .layers = 1, .positions = 8};
  int64_t classes = 3;
  certify::LayerNorm norm = certify::LayerNorm::no_division;
  uint64_t seed = 1;

  static TinyClassifier of(const std::string& hidden_act, certify::LayerNorm norm,
                           int64_t layers = 1) {
    TinyClassifier tiny;
    tiny.bert.hidden_act = hidden_act;
    tiny.bert.layers = layers;
    tiny.norm = norm;
    return tiny;
  }

  // float64, without "bert.".
  TensorMap tensors() const {
    TensorMap tensors = bert.tensors(seed);
    const int64_t h = bert.hidden();
    for (auto& [name, tensor] : tensors) {  // smaller than those of TinyBert: bounds grow fast
      if (tensor.dim() == 2 && name.find("embeddings") == std::string::npos) tensor = tensor * 0.6;
    }
    tensors["pooler.dense.weight"] = at::randn({h, h}, at::kDouble) * 0.3;
    tensors["pooler.dense.bias"] = at::randn({h}, at::kDouble) * 0.1;
    tensors["classifier.weight"] = at::randn({classes, h}, at::kDouble);
    tensors["classifier.bias"] = at::randn({classes}, at::kDouble) * 0.1;
    return tensors;
  }

  certify::BertClassifier make(const at::TensorOptions& options = at::kDouble) const {
    const auto config = bert.model_config();
    const TensorMap all = tensors();
    return {config, norm, models::bert::make_weights(config, all, at::kDouble, at::kCPU, "tiny"),
            models::bert::make_classifier_head(config, all, at::kDouble, at::kCPU, "tiny"),
            options};
  }

  // A folder as BertForSequenceClassification saves it, in float64.
  void write(const std::filesystem::path& folder) const {
    nlohmann::json config = bert.config();
    if (norm == certify::LayerNorm::no_division) config["layer_norm_type"] = "no_division";
    std::ofstream(folder / "config.json") << config.dump(1);
    TensorMap kept;
    std::map<std::string, io::TensorView> views;
    for (const auto& [name, tensor] : tensors()) {
      const std::string full = (name.starts_with("classifier.") ? "" : "bert.") + name;
      const at::Tensor& t = kept[full] = tensor.contiguous();
      views[full] = {
          "F64",
          t.sizes().vec(),
          {static_cast<const std::byte*>(t.const_data_ptr()), static_cast<size_t>(t.nbytes())}};
    }
    io::write_safetensors(folder / "model.safetensors", views);
  }
};

inline certify::Ball ball_around(const at::Tensor& center, std::vector<int64_t> positions,
                                 certify::Norm norm, std::vector<double> eps) {
  return {.center = center.unsqueeze(0).expand({static_cast<int64_t>(eps.size()), -1, -1}),
          .positions = std::move(positions),
          .norm = norm,
          .eps = std::move(eps)};
}

inline int64_t predicted(const certify::Graph& graph, const at::Tensor& center) {
  return graph.evaluate(center.unsqueeze(0)).argmax().item<int64_t>();
}

}  // namespace seqfuse::test
