#include "models/gpt_neox/config.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/names.h"
#include "models/files/config_reader.h"

namespace seqfuse::models::gpt_neox {
namespace fs = std::filesystem;
namespace {

Activation activation_of(const ConfigReader& reader) {
  const std::string name = reader.text("hidden_act", "gelu");
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_fast" || name == "gelu_new") return Activation::gelu_tanh;
  const std::vector<std::string> known = {"gelu", "gelu_fast", "gelu_new"};
  reader.fail("hidden_act is '{}'{}; supported are {}", name, did_you_mean(name, known),
              fmt::join(known, ", "));
}

void check_model_type(const ConfigReader& reader) {
  const std::string type = reader.text("model_type", "");
  if (type == "gpt_neox") return;
  if (type.empty()) reader.fail("model_type is missing; expected \"gpt_neox\"");
  reader.fail("model_type is '{}'; only gpt_neox (GPT-NeoX, Pythia) is supported", type);
}

void read_rotary(const ConfigReader& reader, Config& config) {
  config.rotary_share = reader.positive("rotary_pct", config.rotary_share);
  config.rotary_base = reader.positive("rotary_emb_base", config.rotary_base);
  if (reader.find("rope_scaling") != nullptr) {
    reader.fail("rope_scaling is set; only plain rotary positions are supported");
  }
  if (reader.find("rope_parameters") != nullptr) {
    const ConfigReader rope = reader.object("rope_parameters");
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
  const ConfigReader reader = ConfigReader::of_model(directory, "GPT-NeoX");
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
  std::error_code ignored;
  if (fs::exists(generation, ignored)) {
    const ConfigReader chosen = ConfigReader::open(generation);
    if (chosen.find("eos_token_id") != nullptr) {
      config.eos_ids = chosen.ids("eos_token_id", config.vocab_size);
    }
  }
  return config;
}

}  // namespace seqfuse::models::gpt_neox
