// What a GPT-NeoX checkpoint's config.json says, in its old and its new form.
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
  int64_t max_position_embeddings = 0;  // what it was trained on; nothing here depends on it
  Activation activation = Activation::gelu;
  bool parallel_residual = true;
  bool attention_bias = true;  // query_key_value and dense have biases
  bool tied_output = false;    // the output is embed_in, there is no embed_out
  double layer_norm_eps = 1e-5;
  double rotary_share = 0.25;    // rotary_pct, partial_rotary_factor
  double rotary_base = 10000;    // rotary_emb_base, rope_theta
  std::vector<int64_t> eos_ids;  // any of them ends a text; may be empty

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t rotary_dims() const;  // the first of each head; even
};

// Reads directory/config.json, and eos_token_id of generation_config.json where there is one.
// Old form: rotary_pct, rotary_emb_base; new form: rope_parameters. What is left out has the
// format's default, sizes have none. Throws IoError, or DataError naming the file: an unknown
// model_type or activation, scaled rotary positions, a rotary share that gives an odd number of
// dimensions, sizes that do not fit each other.
Config load_config(const std::filesystem::path& directory);

}  // namespace seqfuse::models::gpt_neox
