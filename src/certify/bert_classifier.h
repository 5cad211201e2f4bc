// An encoder classifier of BERT's layout as a graph.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "certify/graph.h"
#include "models/bert/classifier_head.h"
#include "models/bert/weights.h"

namespace seqfuse::certify {

enum class LayerNorm {
  standard,    // (x - mean) / sqrt(variance + eps) * weight + bias
  no_division  // (x - mean) * weight + bias, as in models for certified training
};

// config.json's layer_norm_type (standard, no_division) or layer_norm (standard, no_var); standard if both
// are absent. Throws DataError for another name.
LayerNorm load_layer_norm(const std::filesystem::path& directory);

class BertClassifier {
 public:
  // weights, head: in float64. The result's arithmetic has the dtype and device of `options`.
  BertClassifier(const models::bert::Config& config, LayerNorm norm,
                 const models::bert::Weights& weights, const models::bert::ClassifierHead& head,
                 const at::TensorOptions& options);
  // A folder of a BertForSequenceClassification. Throws as load_config, load_weights,
  // load_classifier_head and load_layer_norm do.
  static BertClassifier load(const std::filesystem::path& directory,
                             const at::TensorOptions& options);

  const models::bert::Config& config() const { return config_; }
  LayerNorm layer_norm() const { return norm_; }
  int64_t classes() const { return classifier_->weight.size(0); }

  // From the sum of word, position and type embeddings [length, H], before their norm, to logits [1, C]. The
  // last layer computes the first token alone, which is all that the head reads.
  Graph graph(int64_t length) const;

  // The sum of embeddings that graph() starts from, [N, H], with types of 0. Throws UsageError: no ids, more than the model takes, an id outside
  // the vocabulary.
  at::Tensor embeddings(std::span<const int64_t> ids) const;

 private:
  // The parts of a layer norm as matrices.
  struct Norm {
    SharedLinear center;     // x - mean; undefined without division
    SharedLinear scaled;     // (x - mean) * weight; without division also + bias
    SharedLinear variance;   // of the squares of x - mean: their mean + eps
    at::Tensor bias, limit;  // [H]
    double eps = 0;
  };
  struct Layer {
    SharedLinear query, key, value, output, inner, outer;
    Norm norm1, norm2;
  };
  Norm make_norm(const at::Tensor& weight, const at::Tensor& bias) const;
  static int add_norm(Graph& graph, int x, const Norm& norm);
  int add_layer(Graph& graph, int x, const Layer& layer, bool first_row_only) const;

  models::bert::Config config_;
  LayerNorm norm_;
  at::TensorOptions options_;
  at::Tensor words_, positions_, type_;  // float64, on the CPU
  Norm embedding_norm_;
  std::vector<Layer> layers_;
  SharedLinear pooler_, classifier_;
};

}  // namespace seqfuse::certify
