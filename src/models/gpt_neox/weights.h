// A GPT-NeoX checkpoint's tensors, checked and converted to the model's dtype and device.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/gpt_neox/config.h"
#include "models/gpt_neox/linear.h"

namespace seqfuse::models::gpt_neox {

// The dtypes of the large tables in memory; Undefined: the model's dtype, which norms always have. int8 needs
// a model in float32 (CPU), float16 or bfloat16. Any other dtype than the model's needs a CPU, which converts
// to float32 as it reads: weights in the dtype of the file give the same bits as in float32.
struct Storage {
  at::ScalarType linear = at::ScalarType::Undefined;  // int8 (kChar): quantised, by output channel
  at::ScalarType embedding = at::ScalarType::Undefined;  // any floating dtype
  // A table that the file has in another dtype than these is held in the model's: nothing is rounded.
  bool as_in_file = false;
};

// Throws UsageError where a model of that dtype on that device cannot hold its tables so.
void check_storage(const Storage& storage, at::ScalarType dtype, at::Device device);

// Linear weights are [out, in], as in the file. Absent tensors are undefined.
struct LayerWeights {
  at::Tensor norm1_weight, norm1_bias;  // [H] input_layernorm
  at::Tensor norm2_weight, norm2_bias;  // [H] post_attention_layernorm
  Linear qkv;                           // H to 3 H: outputs by head, then q, k, v, then dim
  Linear out;                           // H to H: attention.dense
  Linear up;                            // H to I: mlp.dense_h_to_4h
  Linear down;                          // I to H: mlp.dense_4h_to_h
};

struct Weights {
  at::Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  at::Tensor norm_weight, norm_bias;  // [H] final_layer_norm
  Linear output;                      // H to V; tied: the embedding itself, where held alike

  int64_t bytes() const;  // a shared table counts once
  // The part of bytes() that a decoding step reads: all but the embedding, of which it reads a row a text.
  int64_t step_bytes() const;
};

// Takes tensors by their names in the file, with or without "gpt_neox."; all must be float64,
// float32, float16 or bfloat16. The output is embed_out.weight or lm_head.weight. Legacy buffers
// (attention.bias, attention.masked_bias, attention.rotary_emb.inv_freq) are ignored. Throws
// DataError that names tensor and source: missing, of a shape that contradicts the config, unknown,
// or with values that are not finite (in the file, or after conversion).
Weights make_weights(const Config& config, const std::map<std::string, at::Tensor>& tensors,
                     at::ScalarType dtype, at::Device device, const std::string& source,
                     const Storage& storage = {});

// The same from a directory's safetensors, one file or several; maps them, makes no copy.
Weights load_weights(const Config& config, const std::filesystem::path& directory,
                     at::ScalarType dtype, at::Device device, const Storage& storage = {});

// Bytes of the weights, without loading anything.
int64_t weight_bytes(const Config& config, at::ScalarType dtype, const Storage& storage = {});

// The dtype in the file of the first layer's query_key_value weight.
at::ScalarType stored_dtype(const std::filesystem::path& directory);

}  // namespace seqfuse::models::gpt_neox
