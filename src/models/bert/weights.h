// A BERT checkpoint's tensors, checked and converted to the model's dtype and device.
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models/bert/config.h"
#include "models/files/tensor_files.h"

namespace seqfuse::models::bert {

// H: hidden_size, I: intermediate_size. Matrices are [out, in], as in the file.
struct LayerWeights {
  at::Tensor gemm0, bias0;              // [3 H, H], [3 H]: query, key and value one after the other
  at::Tensor gemm1, bias1;              // [H, H], [H]: attention.output.dense
  at::Tensor norm1_weight, norm1_bias;  // [H]: attention.output.LayerNorm
  at::Tensor gemm2, bias2;              // [I, H], [I]: intermediate.dense
  at::Tensor gemm3, bias3;              // [H, I], [H]: output.dense
  at::Tensor norm2_weight, norm2_bias;  // [H]: output.LayerNorm
};

struct Weights {
  at::Tensor words;                   // [vocab_size, H]
  at::Tensor positions;               // [max_position_embeddings, H]
  at::Tensor types;                   // [type_vocab_size, H]
  at::Tensor norm_weight, norm_bias;  // [H]
  std::vector<LayerWeights> layers;
};

// Takes tensors by their names in the file, with or without "bert."; norms may be called gamma and
// beta, as in old files. Heads (pooler, cls, classifier, qa_outputs) and position_ids are ignored. Throws
// DataError that names tensor and source: missing, of a shape that contradicts the config, of a dtype
// other than float64, float32, float16 and bfloat16, unknown, or with values that are not finite (in
// the file, or after conversion).
Weights make_weights(const Config& config, const TensorMap& tensors, at::ScalarType dtype,
                     at::Device device, const std::string& source);

// The same from a directory's safetensors, one file or several.
Weights load_weights(const Config& config, const std::filesystem::path& directory,
                     at::ScalarType dtype, at::Device device);

// The dtype in the file of the first layer's query weight.
at::ScalarType stored_dtype(const std::filesystem::path& directory);

}  // namespace seqfuse::models::bert
