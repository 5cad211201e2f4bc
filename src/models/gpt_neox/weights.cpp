#include "models/gpt_neox/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "models/files/tensor_files.h"
#include "ops/torch/decode/decode.h"

namespace seqfuse::models::gpt_neox {
namespace fs = std::filesystem;
using at::Tensor;
namespace {

constexpr std::string_view kPrefix = "gpt_neox.";

bool is_legacy_buffer(std::string_view name) {
  return name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with(".attention.rotary_emb.inv_freq");
}

// The dtypes and the device that tensors are converted to.
struct Format {
  at::ScalarType dtype, linear, embedding, bias;
  bool as_in_file;
  at::Device device;
};

Format format_of(const Storage& storage, at::ScalarType dtype, at::Device device) {
  const auto or_dtype = [&](at::ScalarType type) {
    return type == at::ScalarType::Undefined ? dtype : type;
  };
  // On the CPU linear layers compute in float32.
  const bool plain = !device.is_cpu() || dtype == at::kDouble;
  return {dtype,
          or_dtype(storage.linear),
          or_dtype(storage.embedding),
          plain ? dtype : at::kFloat,
          storage.as_in_file,
          device};
}

// Takes tensors by name and reports unused ones at the end.
class Taker {
 public:
  Taker(const TensorMap& tensors, const Format& format, const std::string& source)
      : tensors_(tensors), format_(format), source_(source) {
    for (const auto& [name, tensor] : tensors) {
      if (!is_legacy_buffer(name)) unused_.push_back(name);
    }
    prefixed_ = std::any_of(unused_.begin(), unused_.end(),
                            [](const auto& name) { return name.starts_with(kPrefix); });
  }

  // The name in the file; given: without "gpt_neox.".
  std::string full_name(const std::string& name) const {
    return (prefixed_ ? std::string(kPrefix) : "") + name;
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  void ignore(const std::string& name) { std::erase(unused_, name); }

  // A norm's weight or bias. name: without "gpt_neox.".
  Tensor take(const std::string& name, std::vector<int64_t> shape) {
    const std::string full = full_name(name);
    return converted(full, find(full, shape), format_.dtype);
  }

  Tensor take_embedding(const std::string& name, std::vector<int64_t> shape) {
    const std::string full = full_name(name);
    return converted_table(full, find(full, shape), format_.embedding);
  }

  // name: in the file, without ".weight" and ".bias".
  Linear take_linear(const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
    Linear linear;
    const std::string weight = name + ".weight";
    const Tensor& given = find(weight, {outputs, inputs});
    if (format_.linear == at::kChar) {
      check_finite(weight, given);
      const ops::QuantizedRows rows = ops::quantize_rows(given);
      linear.weight = rows.values.to(format_.device);
      linear.scales = rows.scales.to(format_.device);
    } else {
      linear.weight = converted_table(weight, given, format_.linear);
    }
    if (bias) {
      linear.bias = converted(name + ".bias", find(name + ".bias", {outputs}), format_.bias);
    }
    return linear;
  }

  void expect_all_used() const {
    if (unused_.empty()) return;
    throw_error<DataError>(
        "{}: {} tensors are not of a GPT-NeoX as config.json describes it, the first is {}",
        source_, unused_.size(), unused_.front());
  }

 private:
  const Tensor& find(const std::string& name, const std::vector<int64_t>& shape) {
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
    return given;
  }

  void check_finite(const std::string& name, const Tensor& given) const {
    if (all_finite(given)) return;
    throw_error<DataError>("{}: {} has values that are NaN or infinite", source_, name);
  }

  Tensor converted_table(const std::string& name, const Tensor& given, at::ScalarType dtype) const {
    const bool loses = format_.as_in_file && given.scalar_type() != dtype;
    return converted(name, given, loses ? format_.dtype : dtype);
  }

  Tensor converted(const std::string& name, const Tensor& given, at::ScalarType dtype) const {
    const Tensor result = given.to(at::TensorOptions(format_.device).dtype(dtype),
                                   /*non_blocking=*/false, /*copy=*/true);
    if (all_finite(result)) return result;
    check_finite(name, given);
    throw_error<DataError>("{}: {} has values beyond the range of {}; choose another {}", source_,
                           name, c10::toString(dtype),
                           dtype == format_.dtype ? "--dtype" : "--weights");
  }

  const TensorMap& tensors_;
  Format format_;
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
  const auto linear = [&](const char* part, int64_t outputs, int64_t inputs, bool bias) {
    return taker.take_linear(taker.full_name(name + part), outputs, inputs, bias);
  };
  weights.qkv = linear("attention.query_key_value", 3 * h, h, config.attention_bias);
  weights.out = linear("attention.dense", h, h, config.attention_bias);
  weights.up = linear("mlp.dense_h_to_4h", inner, h, true);
  weights.down = linear("mlp.dense_4h_to_h", h, inner, true);
  return weights;
}

}  // namespace

void check_storage(const Storage& storage, at::ScalarType dtype, at::Device device) {
  const auto differs = [&](at::ScalarType type) {
    return type != at::ScalarType::Undefined && type != dtype;
  };
  if (!differs(storage.linear) && !differs(storage.embedding)) return;
  const auto name = differs(storage.linear) ? storage.linear : storage.embedding;
  const bool int8 = name == at::kChar;
  const std::string what =
      int8 ? "int8 weights" : fmt::format("weights of {}", c10::toString(name));
  SEQFUSE_CHECK_AS(UsageError, dtype != at::kDouble,
                   "{} with --dtype float64; expected float32, float16 or bfloat16", what);
  if (device.is_cpu()) return;
  SEQFUSE_CHECK_AS(UsageError, int8,
                   "{} need a CPU, the model is on {}; --device cpu, or leave out --weights", what,
                   device.str());
  SEQFUSE_CHECK_AS(UsageError, dtype != at::kFloat,
                   "int8 weights on {} with --dtype float32; expected float16 or bfloat16",
                   device.str());
}

int64_t Weights::bytes() const {
  int64_t total = 0;
  const auto add = [&](const auto&... tensors) {
    ((total += static_cast<int64_t>(tensors.nbytes())), ...);
  };
  add(embedding, norm_weight, norm_bias);
  if (!output.weight.is_same(embedding)) total += output.bytes();
  for (const LayerWeights& layer : layers) {
    add(layer.norm1_weight, layer.norm1_bias, layer.norm2_weight, layer.norm2_bias);
    for (const Linear& linear : {layer.qkv, layer.out, layer.up, layer.down}) {
      total += linear.bytes();
    }
  }
  return total;
}

int64_t Weights::step_bytes() const {
  const bool shared = output.weight.is_same(embedding);
  return bytes() - (shared ? 0 : static_cast<int64_t>(embedding.nbytes()));
}

Weights make_weights(const Config& config, const TensorMap& tensors, at::ScalarType dtype,
                     at::Device device, const std::string& source, const Storage& storage) {
  check_storage(storage, dtype, device);
  const Format format = format_of(storage, dtype, device);
  Taker taker(tensors, format, source);
  Weights weights;
  const int64_t vocabulary = config.vocab_size, h = config.hidden_size;
  weights.embedding = taker.take_embedding("embed_in.weight", {vocabulary, h});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(take_layer(taker, config, layer));
  }
  weights.norm_weight = taker.take("final_layer_norm.weight", {h});
  weights.norm_bias = taker.take("final_layer_norm.bias", {h});
  const std::string output = taker.has("lm_head.weight") ? "lm_head" : "embed_out";
  if (config.tied_output) {
    taker.ignore(output + ".weight");  // some files also contain the tied tensor
    if (format.linear == format.embedding) {
      weights.output.weight = weights.embedding;
    } else {
      weights.output = taker.take_linear(taker.full_name("embed_in"), vocabulary, h, false);
    }
  } else {
    weights.output = taker.take_linear(output, vocabulary, h, false);
  }
  taker.expect_all_used();
  return weights;
}

Weights load_weights(const Config& config, const fs::path& directory, at::ScalarType dtype,
                     at::Device device, const Storage& storage) {
  const TensorFiles files(directory);
  return make_weights(config, files.tensors(), dtype, device, files.source(), storage);
}

int64_t weight_bytes(const Config& config, at::ScalarType dtype, const Storage& storage) {
  const Format format = format_of(storage, dtype, at::kCPU);
  const auto size = [](at::ScalarType type) {
    return static_cast<int64_t>(c10::elementSize(type));
  };
  const int64_t h = config.hidden_size, inner = config.intermediate_size;
  const int64_t linear = config.num_layers * (4 * h * h + 2 * h * inner);
  const int64_t small =
      config.num_layers * (inner + 5 * h + (config.attention_bias ? 4 * h : 0)) + 2 * h;
  const int64_t table = config.vocab_size * h;
  const bool shared = config.tied_output && format.linear == format.embedding;
  int64_t total = linear * size(format.linear) + small * size(dtype) +
                  table * size(format.embedding) + (shared ? 0 : table * size(format.linear));
  if (format.linear == at::kChar) {
    total += 4 * (config.num_layers * (5 * h + inner) + config.vocab_size);  // scales
  }
  return total;
}

at::ScalarType stored_dtype(const fs::path& directory) {
  return TensorFiles(directory).dtype_of("layers.0.attention.query_key_value.weight");
}

}  // namespace seqfuse::models::gpt_neox
