// The config.json of a GPT-NeoX checkpoint, in its old or new form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace seqfuse::models::gpt_neox {

enum class Activation {
  gelu,      // exact, with erf: "gelu"
  gelu_tanh  // "gelu_fast" and "gelu_new": the same tanh formula
};

struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t max_position_embeddings = 0;  // trained length; not a limit
  Activation activation = Activation::gelu;
  bool parallel_residual = true;
  bool attention_bias = true;  // of query_key_value and dense
  bool tied_output = false;    // the output is embed_in; there is no embed_out
  double layer_norm_eps = 1e-5;
  double rotary_share = 0.25;    // rotary_pct, partial_rotary_factor
  double rotary_base = 10000;    // rotary_emb_base, rope_theta
  std::vector<int64_t> eos_ids;  // each ends a text; may be empty

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t rotary_dims() const;  // leading dimensions of each head; even
};

// Reads directory/config.json, and eos_token_id of generation_config.json if that exists. Old form:
// rotary_pct, rotary_emb_base; new form: rope_parameters. Absent keys take the format's defaults;
// sizes have none. Throws IoError, or DataError naming the file: an unknown model_type or
// activation, scaled rotary positions, a rotary share with an odd number of dimensions,
// inconsistent sizes.
Config load_config(const std::filesystem::path& directory);

}  // namespace seqfuse::models::gpt_neox
