// BERT: tokens to hidden states, on rows without padding.
//
// The embedding is layer_norm(words[id] + types[type] + positions[position]). A layer, with h [R, H]:
//   a  = layer_norm1(W1 attention(q, k, v) + b1 + h),  [q, k, v] = W0 h + b0
//   h' = layer_norm2(W3 act(W2 a + b2) + b3 + a)
// Sums are rounded to the model's dtype after each addition.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "models/bert/program.h"

namespace seqfuse::models::bert {

// The input, int64 [R] each, on the model's device. Values are not checked.
struct Tokens {
  at::Tensor ids;        // below vocab_size
  at::Tensor types;      // below type_vocab_size; undefined: all 0
  at::Tensor positions;  // below max_position_embeddings
};

// 0, 1, … in each sequence: int64 [sum of lengths] on a device.
at::Tensor positions_of(std::span<const int64_t> lengths, at::Device device);

class Model {
 public:
  // Throws UsageError for a dtype that the device has no operators for: float32 and float64 on the CPU,
  // float16 and bfloat16 on CUDA, where also head_dim must be a multiple of 8, at most 128.
  Model(const Config& config, Weights weights);

  // directory: a checkpoint. Throws as load_config, load_weights and the constructor do.
  static Model load(const std::filesystem::path& directory, at::ScalarType dtype,
                    at::Device device);

  const Config& config() const { return config_; }
  at::ScalarType dtype() const { return weights_.norm_weight.scalar_type(); }
  at::Device device() const { return weights_.norm_weight.device(); }

  const std::vector<LayerWeights>& layers() const { return weights_.layers; }

  // [R, H] each, without gradients.
  at::Tensor embed(const Tokens& tokens) const;
  // Runs all layers on the output of embed(). rows.dense must be set if the program reads it.
  at::Tensor run_layers(at::Tensor states, const Rows& rows, const Program& program) const;
  at::Tensor states(const Tokens& tokens, const Rows& rows, const Program& program = fused()) const;

 private:
  Config config_;
  Weights weights_;
};

// The model's dtype for a file of weights: on the CPU float32; on a GPU that of the file if it has 16
// bits, else float16.
at::ScalarType default_dtype(const std::filesystem::path& directory, at::Device device);

}  // namespace seqfuse::models::bert
