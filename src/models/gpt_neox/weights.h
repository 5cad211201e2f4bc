// A GPT-NeoX checkpoint's tensors, checked and converted to the model's dtype and device.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/gpt_neox/config.h"

namespace seqfuse::models::gpt_neox {

// Linear weights are [out, in], as in the file. Absent tensors are undefined.
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
  at::Tensor output;                  // [V, H]; the same tensor as embedding if tied

  int64_t bytes() const;  // a tied output counts once
};

// Takes tensors by their names in the file, with or without "gpt_neox."; all must be float64,
// float32, float16 or bfloat16. The output is embed_out.weight or lm_head.weight. Legacy buffers
// (attention.bias, attention.masked_bias, attention.rotary_emb.inv_freq) are ignored. Throws
// DataError that names tensor and source: missing, of a shape that contradicts the config, unknown,
// or with values that are not finite (in the file, or after conversion to dtype).
Weights make_weights(const Config& config, const std::map<std::string, at::Tensor>& tensors,
                     at::ScalarType dtype, at::Device device, const std::string& source);

// The same from a directory's safetensors, one file or several; maps them, makes no copy.
Weights load_weights(const Config& config, const std::filesystem::path& directory,
                     at::ScalarType dtype, at::Device device);

// Bytes of the weights in dtype, without loading anything.
int64_t weight_bytes(const Config& config, at::ScalarType dtype);

// The dtype in the file of the first layer's query_key_value weight.
at::ScalarType stored_dtype(const std::filesystem::path& directory);

}  // namespace seqfuse::models::gpt_neox
