#include "models/bert/config.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/names.h"
#include "models/files/config_reader.h"

namespace seqfuse::models::bert {
namespace {

Activation activation_of(const ConfigReader& reader) {
  const std::string name = reader.text("hidden_act", "gelu");
  if (name == "gelu") return Activation::gelu_erf;
  if (name == "gelu_new") return Activation::gelu_tanh;
  if (name == "relu") return Activation::relu;
  const std::vector<std::string> known = {"gelu", "gelu_new", "relu"};
  reader.fail("hidden_act is '{}'{}; supported are {}", name, did_you_mean(name, known),
              fmt::join(known, ", "));
}

void check_kind(const ConfigReader& reader) {
  const std::string type = reader.text("model_type", "");
  if (type.empty()) reader.fail("model_type is missing; expected \"bert\"");
  if (type != "bert") reader.fail("model_type is '{}'; only bert (BERT) is supported", type);
  const std::string positions = reader.text("position_embedding_type", "absolute");
  if (positions != "absolute") {
    reader.fail("position_embedding_type is '{}'; only absolute is supported", positions);
  }
  for (const char* flag : {"is_decoder", "add_cross_attention"}) {
    if (reader.flag(flag, false)) reader.fail("{} is true; only encoders are supported", flag);
  }
}

}  // namespace

Config load_config(const std::filesystem::path& directory) {
  const ConfigReader reader = ConfigReader::of_model(directory, "BERT");
  check_kind(reader);
  Config config;
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size("hidden_size");
  config.intermediate_size = reader.size("intermediate_size");
  config.num_layers = reader.size("num_hidden_layers");
  config.num_heads = reader.size("num_attention_heads");
  config.max_position_embeddings = reader.size("max_position_embeddings");
  if (reader.find("type_vocab_size") != nullptr) {
    config.type_vocab_size = reader.size("type_vocab_size");
  }
  if (config.hidden_size % config.num_heads != 0) {
    reader.fail("hidden_size {} is not a multiple of num_attention_heads {}", config.hidden_size,
                config.num_heads);
  }
  config.activation = activation_of(reader);
  config.layer_norm_eps = reader.positive("layer_norm_eps", config.layer_norm_eps);
  return config;
}

}  // namespace seqfuse::models::bert
