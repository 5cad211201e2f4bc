// The tensors of a GPT-NeoX checkpoint, checked and converted to the dtype and device of a model.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/gpt_neox/config.h"

namespace seqfuse::models::gpt_neox {

// Linear weights are [out, in], as in the file. Undefined: absent.
struct LayerWeights {
  at::Tensor norm1_weight, norm1_bias;  // [H] input_layernorm
  at::Tensor norm2_weight, norm2_bias;  // [H] post_attention_layernorm
  at::Tensor qkv_weight, qkv_bias;      // [3 H, H], [3 H]: rows by head, then q, k, v, then dim
  at::Tensor out_weight, out_bias;      // [H, H], [H] attention.dense
  at::Tensor up_weight, up_bias;        // [I, H], [I] mlp.dense_h_to_4h
  at::Tensor down_weight, down_bias;    // [H, I], [H] mlp.dense_4h_to_h
};

struct Weights {
  at::Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  at::Tensor norm_weight, norm_bias;  // [H] final_layer_norm
  at::Tensor output;                  // [V, H]; the embedding itself where the output is tied

  int64_t bytes() const;  // a tied output counts once
};

// From tensors by their names in the file; all must be float64, float32, float16 or bfloat16. Names
// without "gpt_neox." are taken too. The output is embed_out.weight or lm_head.weight. Legacy buffers
// (attention.bias, attention.masked_bias, attention.rotary_emb.inv_freq) are ignored. Throws
// DataError that names the tensor and source: missing, of another shape than the config wants, not
// known, or with values that are not finite (in the file, or once converted to dtype).
Weights make_weights(const Config& config, const std::map<std::string, at::Tensor>& tensors,
                     at::ScalarType dtype, at::Device device, const std::string& source);

// The same from a folder's safetensors, one file or several, mapped: no copy of the file is made.
Weights load_weights(const Config& config, const std::filesystem::path& directory,
                     at::ScalarType dtype, at::Device device);

// Bytes of the weights in dtype, before anything is loaded.
int64_t weight_bytes(const Config& config, at::ScalarType dtype);

// The dtype of the query_key_value weight of the first layer in the file.
at::ScalarType stored_dtype(const std::filesystem::path& directory);

}  // namespace seqfuse::models::gpt_neox
