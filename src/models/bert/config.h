// The config.json of a Hugging Face BERT.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ops/kernels/gemm/bias_activation.h"

namespace seqfuse::models::bert {

using ops::Activation;

struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t max_position_embeddings = 0;  // tokens of the longest sequence
  int64_t type_vocab_size = 2;
  Activation activation = Activation::gelu_erf;
  double layer_norm_eps = 1e-12;

  int64_t head_dim() const { return hidden_size / num_heads; }
};

// Reads directory/config.json. Sizes must be there, except type_vocab_size. Throws IoError, or
// DataError that names the file and what it has: another model_type, an unknown hidden_act, a
// position_embedding_type other than absolute, a decoder, sizes that do not fit together.
Config load_config(const std::filesystem::path& directory);

}  // namespace seqfuse::models::bert
