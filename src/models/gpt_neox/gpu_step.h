// A decoding step of GPT-NeoX on a GPU by fused operators over fixed memory, for a CUDA graph.
//
// A layer with parallel residual is four launches: both norms; [W_qkv | W_up] with the activation;
// attention with rotary positions and the write to the cache; [W_out | W_down] and both sums. A
// sequential one is seven. StepOptions take them apart.
//
// Results are rounded to 16 bits where Model::states rounds them, with two exceptions: scores and weights of
// attention stay float32, and angles come from float64 at every position. Sums inside an operator have an order
// of their own (tier T2).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"
#include "models/gpt_neox/step_options.h"
#include "ops/torch/decode/decode_step.h"

namespace seqfuse::models::gpt_neox {

class GpuStep {
 public:
  // The reason why this cannot decode a model with this rule and number of texts; empty: it can. It takes a
  // GPU, float16 or bfloat16, a head_dim divisible by 4, sizes divisible by 8 (16: int8 weights) and at most 16
  // texts.
  static std::string why_not(const Model& model, const kv_cache::Rule& rule, int64_t rows);

  // The model and the cache must outlive this.
  GpuStep(const Model& model, kv_cache::Cache& cache, const StepOptions& options = {});

  // Enqueues: one token, ids[row], for each row. Its key and value go to the cache. lengths do not
  // grow yet: that is for whoever picks the next ids.
  void enqueue();

  const at::Tensor& ids() const { return ids_; }        // int64 [rows], to be set before a step
  const at::Tensor& logits() const { return logits_; }  // T [rows, V], of the last step

 private:
  // to = a + b, by PyTorch.
  struct Sum {
    at::Tensor a, b, to;
  };
  using Launch = std::variant<ops::StepNormLaunch, ops::StepSumNormLaunch, ops::StepLinearLaunch,
                              ops::StepAttentionLaunch, Sum>;

  void add_parallel_layer(int64_t layer);
  void add_sequential_layer(int64_t layer);
  void add_norms(const at::Tensor& x, const std::vector<ops::StepNorm>& norms);
  void add_linears(const std::vector<ops::StepOperand>& operands, const at::Tensor& residual = {});
  void add_attention(int64_t layer);
  void add_output();
  // The norms before a layer; for the number of layers, the norm before the output.
  std::vector<ops::StepNorm> norms_of(int64_t layer) const;

  const Model& model_;
  kv_cache::Cache& cache_;
  StepOptions options_;
  ops::StepRule rule_;
  at::Tensor frequencies_, ids_;
  at::Tensor hidden_, between_, normed_, normed_for_mlp_, qkv_, inner_, context_, angles_, logits_;
  at::Tensor attended_, mlp_;  // results of the two branches, if a launch of its own adds them
  at::Tensor workspace_;       // for attention; all layers share it
  std::vector<Launch> launches_;
};

}  // namespace seqfuse::models::gpt_neox
