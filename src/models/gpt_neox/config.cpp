#include "models/gpt_neox/config.h"

#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/names.h"

namespace seqfuse::models::gpt_neox {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// Reads a JSON object; names its file in every message.
class Reader {
 public:
  Reader(const fs::path& file, json object) : file_(file.string()), object_(std::move(object)) {
    if (!object_.is_object()) fail("expected a JSON object");
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error<DataError>("{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Null if the key is absent or null.
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t size(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) fail("{} is missing", key);
    if (!value->is_number_integer() || value->get<int64_t>() < 1) {
      fail("{} is {}; expected a whole number of 1 or more", key, value->dump());
    }
    return value->get<int64_t>();
  }

  double positive(const char* key, double otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() > 0)) {
      fail("{} is {}; expected a number above 0", key, value->dump());
    }
    return value->get<double>();
  }

  bool flag(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail("{} is {}; expected true or false", key, value->dump());
    return value->get<bool>();
  }

  std::string text(const char* key, const std::string& otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fail("{} is {}; expected a string", key, value->dump());
    return value->get<std::string>();
  }

  // An id or a list of ids, each below vocab_size.
  std::vector<int64_t> ids(const char* key, int64_t vocab_size) const {
    const json* value = find(key);
    if (value == nullptr) return {};
    std::vector<int64_t> ids;
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size) {
        fail("{} is {}; expected ids from 0 to {}", key, value->dump(), vocab_size - 1);
      }
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }

  Reader object(const char* key) const { return {file_, *find(key)}; }

 private:
  std::string file_;
  json object_;
};

Reader open(const fs::path& file) {
  json object = json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) throw_error<DataError>("{}: it is not valid JSON", file.string());
  return {file, std::move(object)};
}

Activation activation_of(const Reader& reader) {
  const std::string name = reader.text("hidden_act", "gelu");
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_fast" || name == "gelu_new") return Activation::gelu_tanh;
  const std::vector<std::string> known = {"gelu", "gelu_fast", "gelu_new"};
  reader.fail("hidden_act is '{}'{}; supported are {}", name, did_you_mean(name, known),
              fmt::join(known, ", "));
}

void check_model_type(const Reader& reader) {
  const std::string type = reader.text("model_type", "");
  if (type == "gpt_neox") return;
  if (type.empty()) reader.fail("model_type is missing; expected \"gpt_neox\"");
  reader.fail("model_type is '{}'; only gpt_neox (GPT-NeoX, Pythia) is supported", type);
}

void read_rotary(const Reader& reader, Config& config) {
  config.rotary_share = reader.positive("rotary_pct", config.rotary_share);
  config.rotary_base = reader.positive("rotary_emb_base", config.rotary_base);
  if (reader.find("rope_scaling") != nullptr) {
    reader.fail("rope_scaling is set; only plain rotary positions are supported");
  }
  if (reader.find("rope_parameters") != nullptr) {
    const Reader rope = reader.object("rope_parameters");
    const std::string type = rope.text("rope_type", "default");
    if (type != "default") {
      reader.fail("rope_type is '{}'; only plain rotary positions ('default') are supported", type);
    }
    config.rotary_share = rope.positive("partial_rotary_factor", config.rotary_share);
    config.rotary_base = rope.positive("rope_theta", config.rotary_base);
  }
  const int64_t dims = config.rotary_dims();
  if (config.rotary_share > 1 || dims < 2 || dims % 2 != 0) {
    reader.fail(
        "a rotary share (rotary_pct, partial_rotary_factor) of {} makes {} of {} dimensions of a "
        "head rotary; expected an even number from 2 to {}",
        config.rotary_share, dims, config.head_dim(), config.head_dim());
  }
}

}  // namespace

int64_t Config::rotary_dims() const {
  return static_cast<int64_t>(static_cast<double>(head_dim()) * rotary_share);
}

Config load_config(const fs::path& directory) {
  std::error_code ignored;
  const fs::path file = directory / "config.json";
  if (!fs::is_directory(directory, ignored)) {
    throw_error<DataError>(
        "{} is not a folder; give the folder of a model, with config.json and model.safetensors",
        directory.string());
  }
  if (!fs::exists(file, ignored)) {
    throw_error<DataError>("{} has no config.json; give the folder of a Hugging Face GPT-NeoX",
                           directory.string());
  }
  const Reader reader = open(file);
  check_model_type(reader);
  Config config;
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size("hidden_size");
  config.intermediate_size = reader.size("intermediate_size");
  config.num_layers = reader.size("num_hidden_layers");
  config.num_heads = reader.size("num_attention_heads");
  config.max_position_embeddings = reader.size("max_position_embeddings");
  if (config.hidden_size % config.num_heads != 0) {
    reader.fail("hidden_size {} is not a multiple of num_attention_heads {}", config.hidden_size,
                config.num_heads);
  }
  config.activation = activation_of(reader);
  config.parallel_residual = reader.flag("use_parallel_residual", config.parallel_residual);
  config.attention_bias = reader.flag("attention_bias", config.attention_bias);
  config.tied_output = reader.flag("tie_word_embeddings", config.tied_output);
  config.layer_norm_eps = reader.positive("layer_norm_eps", config.layer_norm_eps);
  read_rotary(reader, config);
  config.eos_ids = reader.ids("eos_token_id", config.vocab_size);
  const fs::path generation = directory / "generation_config.json";
  if (fs::exists(generation, ignored)) {
    const Reader chosen = open(generation);
    if (chosen.find("eos_token_id") != nullptr) {
      config.eos_ids = chosen.ids("eos_token_id", config.vocab_size);
    }
  }
  return config;
}

}  // namespace seqfuse::models::gpt_neox
