#include "certify/bert_classifier.h"

#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "models/files/config_reader.h"

namespace seqfuse::certify {
using at::Tensor;
namespace {

Function function_of(models::bert::Activation activation) {
  switch (activation) {
    case models::bert::Activation::relu:
      return Function::relu;
    case models::bert::Activation::gelu_erf:
      return Function::gelu_erf;
    case models::bert::Activation::gelu_tanh:
      return Function::gelu_tanh;
    default:
      throw_error<DataError>(
          "this model's activation cannot be bounded; relu, gelu and gelu_new can");
  }
}

}  // namespace

LayerNorm load_layer_norm(const std::filesystem::path& directory) {
  const auto reader = models::ConfigReader::of_model(directory, "BERT");
  const char* key = reader.find("layer_norm_type") != nullptr ? "layer_norm_type" : "layer_norm";
  const std::string name = reader.text(key, "standard");
  if (name == "standard") return LayerNorm::standard;
  if (name == "no_division" || name == "no_var") return LayerNorm::no_division;
  const std::vector<std::string> known = {"standard", "no_division", "no_var"};
  reader.fail("{} is '{}'{}; bounds exist for {}", key, name, did_you_mean(name, known),
              fmt::join(known, ", "));
}

BertClassifier BertClassifier::load(const std::filesystem::path& directory,
                                    const at::TensorOptions& options) {
  const models::bert::Config config = models::bert::load_config(directory);
  const LayerNorm norm = load_layer_norm(directory);
  return {config, norm, models::bert::load_weights(config, directory, at::kDouble, at::kCPU),
          models::bert::load_classifier_head(config, directory, at::kDouble, at::kCPU), options};
}

BertClassifier::BertClassifier(const models::bert::Config& config, LayerNorm norm,
                               const models::bert::Weights& weights,
                               const models::bert::ClassifierHead& head,
                               const at::TensorOptions& options)
    : config_(config),
      norm_(norm),
      options_(options),
      words_(weights.words),
      positions_(weights.positions),
      type_(weights.types[0]),
      embedding_norm_(make_norm(weights.norm_weight, weights.norm_bias)) {
  const auto linear = [&](const Tensor& weight, const Tensor& bias) {
    return std::make_shared<const Linear>(weight, bias, options_);
  };
  const int64_t h = config.hidden_size;
  for (const models::bert::LayerWeights& layer : weights.layers) {
    const auto part = [&](int64_t number) {
      return linear(layer.gemm0.narrow(0, number * h, h), layer.bias0.narrow(0, number * h, h));
    };
    layers_.push_back({.query = part(0),
                       .key = part(1),
                       .value = part(2),
                       .output = linear(layer.gemm1, layer.bias1),
                       .inner = linear(layer.gemm2, layer.bias2),
                       .outer = linear(layer.gemm3, layer.bias3),
                       .norm1 = make_norm(layer.norm1_weight, layer.norm1_bias),
                       .norm2 = make_norm(layer.norm2_weight, layer.norm2_bias)});
  }
  pooler_ = linear(head.pooler_weight, head.pooler_bias);
  classifier_ = linear(head.classifier_weight, head.classifier_bias);
}

BertClassifier::Norm BertClassifier::make_norm(const Tensor& weight, const Tensor& bias) const {
  const int64_t h = config_.hidden_size;
  const Tensor zero = at::zeros_like(bias);
  const Tensor center = at::eye(h, weight.options()) - 1.0 / static_cast<double>(h);
  const Tensor scaled = center * weight.unsqueeze(1);
  const auto linear = [&](const Tensor& matrix, const Tensor& offset) {
    return std::make_shared<const Linear>(matrix, offset, options_);
  };
  Norm norm;
  norm.eps = config_.layer_norm_eps;
  if (norm_ == LayerNorm::no_division) {
    norm.scaled = linear(scaled, bias);
    return norm;
  }
  norm.center = linear(center, zero);
  norm.scaled = linear(scaled, zero);
  norm.variance = linear(at::full({1, h}, 1.0 / static_cast<double>(h), weight.options()),
                         at::full({1}, norm.eps, weight.options()));
  norm.bias = bias.to(options_);
  // |x - mean| is at most sqrt(H - 1) standard deviations.
  norm.limit = (weight.abs() * (std::sqrt(static_cast<double>(h - 1)) * (1 + 1e-6))).to(options_);
  return norm;
}

int BertClassifier::add_norm(Graph& graph, int x, const Norm& norm) {
  const int scaled = graph.linear(x, norm.scaled);
  if (!norm.center) return scaled;
  const int squares = graph.function(graph.linear(x, norm.center), Function::square);
  const int variance = graph.linear(squares, norm.variance, norm.eps);
  return graph.product(scaled, graph.function(variance, Function::rsqrt), norm.bias, norm.limit);
}

int BertClassifier::add_layer(Graph& graph, int x, const Layer& layer, bool first_row_only) const {
  const int queries = first_row_only ? graph.first_row(x) : x;
  const int q = graph.linear(queries, layer.query), k = graph.linear(x, layer.key);
  const int v = graph.linear(x, layer.value);
  const double scale = 1 / std::sqrt(static_cast<double>(config_.head_dim()));
  const int p = graph.softmax(graph.scores(q, k, config_.num_heads, scale));
  const int attention = graph.linear(graph.context(p, v), layer.output);
  const int a = add_norm(graph, graph.add(attention, queries), layer.norm1);
  const int inner = graph.function(graph.linear(a, layer.inner), function_of(config_.activation));
  return add_norm(graph, graph.add(graph.linear(inner, layer.outer), a), layer.norm2);
}

Graph BertClassifier::graph(int64_t length) const {
  Graph graph;
  int x = add_norm(graph, graph.input(length, config_.hidden_size), embedding_norm_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = add_layer(graph, x, layers_[i], i + 1 == layers_.size());
  }
  graph.linear(graph.function(graph.linear(x, pooler_), Function::tanh), classifier_);
  return graph;
}

Tensor BertClassifier::embeddings(std::span<const int64_t> ids) const {
  const auto count = static_cast<int64_t>(ids.size());
  SEQFUSE_CHECK_AS(UsageError, count > 0, "a sentence without tokens; expected 1 or more");
  SEQFUSE_CHECK_AS(UsageError, count <= config_.max_position_embeddings,
                   "a sentence of {} tokens; this model takes at most {}", count,
                   config_.max_position_embeddings);
  for (const int64_t id : ids) {
    SEQFUSE_CHECK_AS(UsageError, id >= 0 && id < config_.vocab_size,
                     "there is no id {}; expected 0 to {}, the model's vocabulary", id,
                     config_.vocab_size - 1);
  }
  const Tensor rows =
      words_.index_select(0, at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong));
  return (rows + positions_.narrow(0, 0, count) + type_).to(options_);
}

}  // namespace seqfuse::certify
