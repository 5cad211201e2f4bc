#include "models/gpt_neox/gpu_step.h"

#include <fmt/format.h>

#include <utility>

namespace seqfuse::models::gpt_neox {
using at::Tensor;
namespace {

ops::StepOperand operand(const Linear& linear, const Tensor& x, const Tensor& y,
                         LinearActivation activation = LinearActivation::none) {
  return {.weight = linear.weight,
          .scales = linear.scales,
          .bias = linear.bias,
          .x = x,
          .activation = activation,
          .y = y};
}

ops::StepRule step_rule(const kv_cache::Rule& rule) {
  return {.start = rule.start,
          .recent = rule.recent,
          .prune_every = rule.prune_every,
          .true_distances = rule.true_distances};
}

}  // namespace

std::string GpuStep::why_not(const Model& model, const kv_cache::Rule& rule, int64_t rows) {
  const Config& config = model.config();
  if (!model.device().is_cuda()) return "the model is on a CPU";
  if (model.dtype() != at::kHalf && model.dtype() != at::kBFloat16) {
    return fmt::format("the model is {}; expected Half or BFloat16", c10::toString(model.dtype()));
  }
  if (rule.kind == kv_cache::Kind::recompute) return "the recompute rule has no cache";
  if (rows > ops::kMaxStepRows) return fmt::format("{} texts; at most 16", rows);
  const bool int8 = model.weights().output.scales.defined();
  const int64_t grain = int8 ? 16 : 8;
  for (const auto& [name, size] : {std::pair{"hidden_size", config.hidden_size},
                                   std::pair{"intermediate_size", config.intermediate_size}}) {
    if (size % grain != 0) {
      return fmt::format("{} is {}; expected a multiple of {}", name, size, grain);
    }
  }
  const int64_t dim = config.head_dim();
  if (dim % 8 != 0 || dim > ops::kMaxStepHeadDim) {
    return fmt::format("head_dim is {}; expected a multiple of 8, at most {}", dim,
                       ops::kMaxStepHeadDim);
  }
  if (!ops::step_attention_fits(dim, model.device())) {
    return fmt::format("head_dim is {}; this GPU has too little shared memory for it", dim);
  }
  return "";
}

GpuStep::GpuStep(const Model& model, const kv_cache::Cache& cache)
    : embedding_(model.weights().embedding),
      frequencies_(cache.rotary().frequencies()),
      lengths_(cache.lengths_on_device()),
      rule_(step_rule(cache.rule())) {
  const Config& config = model.config();
  const Weights& weights = model.weights();
  const int64_t rows = cache.rows(), h = config.hidden_size;
  const auto options = weights.norm_weight.options();
  ids_ = at::zeros({rows}, options.dtype(at::kLong));
  hidden_ = at::zeros({rows, h}, options);
  between_ = at::zeros({rows, h}, options);
  normed_ = at::zeros({rows, h}, options);
  normed_for_mlp_ = at::zeros({rows, h}, options);
  qkv_ = at::zeros({rows, 3 * h}, options);
  inner_ = at::zeros({rows, config.intermediate_size}, options);
  context_ = at::zeros({rows, h}, options);
  angles_ = at::zeros({rows, 2, 2, frequencies_.size(0)}, options);
  logits_ = at::zeros({rows, config.vocab_size}, options);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers_.push_back(make_layer(model, layer, cache));
  }
  output_norm_.emplace(
      hidden_,
      std::vector<ops::StepNormLaunch::Norm>{{weights.norm_weight, weights.norm_bias, normed_}},
      config.layer_norm_eps);
  output_.emplace(std::vector{operand(weights.output, normed_, logits_)}, Tensor());
}

GpuStep::Layer GpuStep::make_layer(const Model& model, int64_t index,
                                   const kv_cache::Cache& cache) const {
  using Norms = std::vector<ops::StepNormLaunch::Norm>;
  using Operands = std::vector<ops::StepOperand>;
  const Config& config = model.config();
  const LayerWeights& w = model.weights().layers[index];
  const double eps = config.layer_norm_eps;
  const auto activation = config.activation == Activation::gelu ? LinearActivation::gelu_erf
                                                                : LinearActivation::gelu_tanh;
  // The attention of all layers shares a workspace.
  const ops::StepAttentionLaunch attention(
      qkv_, cache.keys(index), cache.values(index), lengths_, angles_, context_, rule_,
      layers_.empty() ? Tensor() : layers_.front().attention.workspace());
  const auto up = operand(w.up, normed_for_mlp_, inner_, activation);
  const auto qkv = operand(w.qkv, normed_, qkv_);
  const ops::StepNormLaunch::Norm norm{w.norm1_weight, w.norm1_bias, normed_},
      norm_for_mlp{w.norm2_weight, w.norm2_bias, normed_for_mlp_};
  if (config.parallel_residual) {
    return {.norm = {hidden_, {norm, norm_for_mlp}, eps},
            .before = {Operands{qkv, up}, Tensor()},
            .attention = attention,
            .after = {Operands{operand(w.out, context_, hidden_), operand(w.down, inner_, {})},
                      hidden_},
            .mlp = std::nullopt};
  }
  return {.norm = {hidden_, Norms{norm}, eps},
          .before = {Operands{qkv}, Tensor()},
          .attention = attention,
          .after = {Operands{operand(w.out, context_, between_)}, hidden_},
          .mlp = SequentialMlp{.norm = {between_, Norms{norm_for_mlp}, eps},
                               .up = {Operands{up}, Tensor()},
                               .down = {Operands{operand(w.down, inner_, hidden_)}, between_}}};
}

void GpuStep::enqueue() const {
  ops::begin_step(embedding_, ids_, lengths_, frequencies_, rule_, hidden_, angles_);
  for (const Layer& layer : layers_) {
    layer.norm.enqueue();
    layer.before.enqueue();
    layer.attention.enqueue();
    layer.after.enqueue();
    if (layer.mlp) {
      layer.mlp->norm.enqueue();
      layer.mlp->up.enqueue();
      layer.mlp->down.enqueue();
    }
  }
  output_norm_->enqueue();
  output_->enqueue();
}

}  // namespace seqfuse::models::gpt_neox
