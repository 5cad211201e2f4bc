// A decoding step of GPT-NeoX on a GPU by fused operators over fixed memory, for a CUDA graph.
//
// A layer with parallel residual is four launches: both norms; [W_qkv | W_up] with the activation;
// attention with rotary positions and the write to the cache; [W_out | W_down] and both sums. A
// sequential one is seven. Roundings are those of Model::states; sums inside the operators differ in
// order (tier T2).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kv_cache/cache.h"
#include "models/gpt_neox/model.h"
#include "ops/torch/decode_step.h"

namespace seqfuse::models::gpt_neox {

class GpuStep {
 public:
  // Why a model, with this rule and number of texts, is not decoded so; empty: it is. It takes a GPU,
  // float16 or bfloat16, head_dim and sizes divisible by 8 (16: int8 weights), at most 16 texts.
  static std::string why_not(const Model& model, const kv_cache::Rule& rule, int64_t rows);

  // The model and the cache must outlive this.
  GpuStep(const Model& model, const kv_cache::Cache& cache);

  // Enqueues: one token, ids[row], for each row. Its key and value go to the cache. lengths do not
  // grow yet: that is for whoever picks the next ids.
  void enqueue() const;

  const at::Tensor& ids() const { return ids_; }        // int64 [rows], to be set before a step
  const at::Tensor& logits() const { return logits_; }  // T [rows, V], of the last step

 private:
  struct SequentialMlp {
    ops::StepNormLaunch norm;
    ops::StepLinearLaunch up, down;
  };
  struct Layer {
    ops::StepNormLaunch norm;
    ops::StepLinearLaunch before;  // attention
    ops::StepAttentionLaunch attention;
    ops::StepLinearLaunch after;
    std::optional<SequentialMlp> mlp;  // of a sequential residual
  };

  Layer make_layer(const Model& model, int64_t layer, const kv_cache::Cache& cache) const;

  at::Tensor embedding_, frequencies_, lengths_, ids_;
  at::Tensor hidden_, between_, normed_, normed_for_mlp_, qkv_, inner_, context_, angles_, logits_;
  ops::StepRule rule_;
  std::vector<Layer> layers_;
  std::optional<ops::StepNormLaunch> output_norm_;
  std::optional<ops::StepLinearLaunch> output_;
};

}  // namespace seqfuse::models::gpt_neox
