#include "models/gpt_neox/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/names.h"
#include "io/safetensors.h"

namespace seqfuse::models::gpt_neox {
namespace fs = std::filesystem;
using at::Tensor;
using TensorMap = std::map<std::string, Tensor>;
namespace {

constexpr std::string_view kPrefix = "gpt_neox.";

bool is_legacy_buffer(std::string_view name) {
  return name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with(".attention.rotary_emb.inv_freq");
}

// Works in blocks, so that a large tensor is not copied.
bool all_finite(const Tensor& tensor) {
  constexpr int64_t kBlock = 1 << 22;
  const Tensor flat = tensor.reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += kBlock) {
    const Tensor block = flat.narrow(0, begin, std::min(kBlock, flat.numel() - begin));
    if (!at::isfinite(block).all().item<bool>()) return false;
  }
  return true;
}

// Takes tensors by name and reports unused ones at the end.
class Taker {
 public:
  Taker(const TensorMap& tensors, at::ScalarType dtype, at::Device device,
        const std::string& source)
      : tensors_(tensors), dtype_(dtype), device_(device), source_(source) {
    for (const auto& [name, tensor] : tensors) {
      if (!is_legacy_buffer(name)) unused_.push_back(name);
    }
    prefixed_ = std::any_of(unused_.begin(), unused_.end(),
                            [](const auto& name) { return name.starts_with(kPrefix); });
  }

  // name: without "gpt_neox.".
  Tensor take(const std::string& name, std::vector<int64_t> shape) {
    return take_exact((prefixed_ ? std::string(kPrefix) : "") + name, std::move(shape));
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  void ignore(const std::string& name) { std::erase(unused_, name); }

  Tensor take_exact(const std::string& name, std::vector<int64_t> shape) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      throw_error<DataError>("{}: the tensor {} is missing{}", source_, name,
                             did_you_mean(name, unused_));
    }
    ignore(name);
    const Tensor& given = found->second;
    if (given.sizes() != at::IntArrayRef(shape)) {
      throw_error<DataError>("{}: {} is [{}]; config.json makes it [{}]", source_, name,
                             fmt::join(given.sizes(), ", "), fmt::join(shape, ", "));
    }
    if (!given.is_floating_point()) {
      throw_error<DataError>("{}: {} is {}; expected float32, float16 or bfloat16", source_, name,
                             c10::toString(given.scalar_type()));
    }
    const Tensor converted =
        given.to(at::TensorOptions(device_).dtype(dtype_), /*non_blocking=*/false, /*copy=*/true);
    if (!all_finite(converted)) {
      if (!all_finite(given)) {
        throw_error<DataError>("{}: {} has values that are NaN or infinite", source_, name);
      }
      throw_error<DataError>("{}: {} has values beyond the range of {}; choose another --dtype",
                             source_, name, c10::toString(dtype_));
    }
    return converted;
  }

  void expect_all_used() const {
    if (unused_.empty()) return;
    throw_error<DataError>(
        "{}: {} tensors are not of a GPT-NeoX as config.json describes it, the first is {}",
        source_, unused_.size(), unused_.front());
  }

 private:
  const TensorMap& tensors_;
  at::ScalarType dtype_;
  at::Device device_;
  std::string source_;
  std::vector<std::string> unused_;
  bool prefixed_ = false;
};

LayerWeights take_layer(Taker& taker, const Config& config, int64_t layer) {
  const int64_t h = config.hidden_size, inner = config.intermediate_size;
  const std::string name = fmt::format("layers.{}.", layer);
  LayerWeights weights;
  weights.norm1_weight = taker.take(name + "input_layernorm.weight", {h});
  weights.norm1_bias = taker.take(name + "input_layernorm.bias", {h});
  weights.norm2_weight = taker.take(name + "post_attention_layernorm.weight", {h});
  weights.norm2_bias = taker.take(name + "post_attention_layernorm.bias", {h});
  weights.qkv_weight = taker.take(name + "attention.query_key_value.weight", {3 * h, h});
  weights.out_weight = taker.take(name + "attention.dense.weight", {h, h});
  if (config.attention_bias) {
    weights.qkv_bias = taker.take(name + "attention.query_key_value.bias", {3 * h});
    weights.out_bias = taker.take(name + "attention.dense.bias", {h});
  }
  weights.up_weight = taker.take(name + "mlp.dense_h_to_4h.weight", {inner, h});
  weights.up_bias = taker.take(name + "mlp.dense_h_to_4h.bias", {inner});
  weights.down_weight = taker.take(name + "mlp.dense_4h_to_h.weight", {h, inner});
  weights.down_bias = taker.take(name + "mlp.dense_4h_to_h.bias", {h});
  return weights;
}

at::ScalarType dtype_of(const std::string& tensor, const std::string& dtype,
                        const std::string& source) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F64") return at::kDouble;
  throw_error<DataError>("{}: {} is {}; expected F32, F16 or BF16", source, tensor, dtype);
}

std::string source_of(const fs::path& directory) {
  std::error_code ignored;
  const fs::path index = directory / "model.safetensors.index.json";
  const fs::path single = directory / "model.safetensors";
  return (fs::exists(single, ignored) || !fs::exists(index, ignored) ? single : index).string();
}

}  // namespace

int64_t Weights::bytes() const {
  int64_t total = 0;
  const auto add = [&](const auto&... tensors) {
    ((total += tensors.defined() ? static_cast<int64_t>(tensors.nbytes()) : 0), ...);
  };
  add(embedding, norm_weight, norm_bias);
  if (!output.is_same(embedding)) add(output);
  for (const LayerWeights& layer : layers) {
    add(layer.norm1_weight, layer.norm1_bias, layer.norm2_weight, layer.norm2_bias,
        layer.qkv_weight, layer.qkv_bias, layer.out_weight, layer.out_bias, layer.up_weight,
        layer.up_bias, layer.down_weight, layer.down_bias);
  }
  return total;
}

Weights make_weights(const Config& config, const TensorMap& tensors, at::ScalarType dtype,
                     at::Device device, const std::string& source) {
  Taker taker(tensors, dtype, device, source);
  Weights weights;
  weights.embedding = taker.take("embed_in.weight", {config.vocab_size, config.hidden_size});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(take_layer(taker, config, layer));
  }
  weights.norm_weight = taker.take("final_layer_norm.weight", {config.hidden_size});
  weights.norm_bias = taker.take("final_layer_norm.bias", {config.hidden_size});
  const std::string output = taker.has("lm_head.weight") ? "lm_head.weight" : "embed_out.weight";
  if (config.tied_output) {
    taker.ignore(output);  // some files also contain the tied tensor
    weights.output = weights.embedding;
  } else {
    weights.output = taker.take_exact(output, {config.vocab_size, config.hidden_size});
  }
  taker.expect_all_used();
  return weights;
}

Weights load_weights(const Config& config, const fs::path& directory, at::ScalarType dtype,
                     at::Device device) {
  const std::string source = source_of(directory);
  const io::SafetensorsModel files(directory);
  TensorMap tensors;
  for (const auto& [name, view] : files.tensors()) {
    if (is_legacy_buffer(name)) continue;
    // const_cast: the mapping is read-only and this tensor is never written.
    tensors[name] = at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape,
                                  at::dtype(dtype_of(name, view.dtype, source)));
  }
  return make_weights(config, tensors, dtype, device, source);
}

int64_t weight_bytes(const Config& config, at::ScalarType dtype) {
  const int64_t h = config.hidden_size, inner = config.intermediate_size;
  const int64_t layer =
      4 * h * h + 2 * h * inner + inner + 5 * h + (config.attention_bias ? 4 * h : 0);
  const int64_t tables = (config.tied_output ? 1 : 2) * config.vocab_size * h;
  return (config.num_layers * layer + tables + 2 * h) *
         static_cast<int64_t>(c10::elementSize(dtype));
}

at::ScalarType stored_dtype(const fs::path& directory) {
  const io::SafetensorsModel files(directory);
  for (const auto& [name, view] : files.tensors()) {
    if (name.ends_with("layers.0.attention.query_key_value.weight")) {
      return dtype_of(name, view.dtype, source_of(directory));
    }
  }
  return at::kFloat;  // loading will report what is missing
}

}  // namespace seqfuse::models::gpt_neox
