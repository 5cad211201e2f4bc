#include "models/bert/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::models::bert {
using at::Tensor;
namespace {

constexpr std::string_view kPrefix = "bert.";

// Of heads and buffers that an encoder does not use. name: without the prefix.
bool is_not_of_the_encoder(std::string_view name) {
  return name.starts_with("pooler.") || name.starts_with("cls.") ||
         name.starts_with("classifier.") || name.starts_with("qa_outputs.") ||
         name == "embeddings.position_ids";
}

// Takes tensors by name and reports unused ones at the end.
class BertTensors {
 public:
  BertTensors(const TensorMap& tensors, at::TensorOptions options, std::string source)
      : tensors_(tensors), options_(options), source_(std::move(source)) {
    for (const auto& [name, tensor] : tensors) {
      std::string_view inner = name;
      if (inner.starts_with(kPrefix)) inner.remove_prefix(kPrefix.size());
      if (!is_not_of_the_encoder(inner)) unused_.push_back(name);
      prefixed_ = prefixed_ || name.starts_with(kPrefix);
    }
  }

  // name: without the prefix.
  Tensor take(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = find(name);
    std::erase(unused_, found->first);
    const Tensor& given = found->second;
    if (given.sizes() != at::IntArrayRef(shape)) {
      throw_error<DataError>("{}: {} is [{}]; config.json makes it [{}]", source_, found->first,
                             fmt::join(given.sizes(), ", "), fmt::join(shape, ", "));
    }
    if (!given.is_floating_point()) {
      throw_error<DataError>("{}: {} is {}; expected float32, float16 or bfloat16", source_,
                             found->first, c10::toString(given.scalar_type()));
    }
    return converted(found->first, given);
  }

  void take_norm(const std::string& name, int64_t size, Tensor& weight, Tensor& bias) {
    weight = take(name + ".weight", {size});
    bias = take(name + ".bias", {size});
  }

  void take_linear(const std::string& name, int64_t outputs, int64_t inputs, Tensor& weight,
                   Tensor& bias) {
    weight = take(name + ".weight", {outputs, inputs});
    bias = take(name + ".bias", {outputs});
  }

  void expect_all_used() const {
    if (unused_.empty()) return;
    throw_error<DataError>(
        "{}: {} tensors are not of a BERT as config.json describes it, the "
        "first is {}",
        source_, unused_.size(), unused_.front());
  }

 private:
  TensorMap::const_iterator find(const std::string& name) const {
    const std::string full = (prefixed_ ? std::string(kPrefix) : "") + name;
    auto found = tensors_.find(full);
    if (found != tensors_.end()) return found;
    for (const auto& [now, once] : {std::pair{".weight", ".gamma"}, {".bias", ".beta"}}) {
      const std::string ending = std::string("LayerNorm") + now;
      if (!full.ends_with(ending)) continue;
      found = tensors_.find(full.substr(0, full.size() - std::string_view(now).size()) + once);
      if (found != tensors_.end()) return found;
    }
    throw_error<DataError>("{}: the tensor {} is missing{}", source_, full,
                           did_you_mean(full, unused_));
  }

  Tensor converted(const std::string& name, const Tensor& given) const {
    Tensor result = given.to(options_, /*non_blocking=*/false, /*copy=*/true);
    if (all_finite(result)) return result;
    SEQFUSE_CHECK_AS(DataError, all_finite(given), "{}: {} has values that are NaN or infinite",
                     source_, name);
    throw_error<DataError>("{}: {} has values beyond the range of {}; choose another dtype",
                           source_, name, c10::toString(result.scalar_type()));
  }

  const TensorMap& tensors_;
  at::TensorOptions options_;
  std::string source_;
  std::vector<std::string> unused_;
  bool prefixed_ = false;
};

LayerWeights take_bert_layer(BertTensors& tensors, const Config& config, int64_t layer) {
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
  BertTensors taker(tensors, at::TensorOptions(device).dtype(dtype), source);
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
