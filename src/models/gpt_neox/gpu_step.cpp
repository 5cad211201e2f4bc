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
          .norm_weight = {},
          .norm_bias = {},
          .activation = activation,
          .y = y};
}

ops::StepOperand normed(const Tensor& weight, const Tensor& bias, ops::StepOperand operand) {
  operand.norm_weight = weight;
  operand.norm_bias = bias;
  return operand;
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
  qkv_ = at::zeros({rows, 3 * h}, options);
  inner_ = at::zeros({rows, config.intermediate_size}, options);
  context_ = at::zeros({rows, h}, options);
  angles_ = at::zeros({rows, 2, 2, frequencies_.size(0)}, options);
  logits_ = at::zeros({rows, config.vocab_size}, options);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers_.push_back(make_layer(model, layer, cache));
  }
  const ops::StepOperand output =
      normed(weights.norm_weight, weights.norm_bias, operand(weights.output, hidden_, logits_));
  output_.emplace_back(std::vector{output}, Tensor(), config.layer_norm_eps);
}

GpuStep::Layer GpuStep::make_layer(const Model& model, int64_t index,
                                   const kv_cache::Cache& cache) const {
  const Config& config = model.config();
  const LayerWeights& w = model.weights().layers[index];
  const auto activation = config.activation == Activation::gelu ? LinearActivation::gelu_erf
                                                                : LinearActivation::gelu_tanh;
  // Launches at the same place of each layer share a workspace.
  const Layer* const like = layers_.empty() ? nullptr : &layers_.front();
  const auto launch = [&](std::vector<ops::StepOperand> operands, const Tensor& residual,
                          const ops::StepLinearLaunch* shares_with) {
    return ops::StepLinearLaunch(std::move(operands), residual, config.layer_norm_eps,
                                 shares_with ? shares_with->workspace() : Tensor());
  };
  const auto before = [&](size_t i) { return like ? &like->before[i] : nullptr; };
  const auto after = [&](size_t i) { return like ? &like->after[i] : nullptr; };
  const auto qkv = normed(w.norm1_weight, w.norm1_bias, operand(w.qkv, hidden_, qkv_));
  Layer layer{.before = {},
              .after = {},
              .attention = {qkv_, cache.keys(index), cache.values(index), lengths_, angles_,
                            context_, rule_, like ? like->attention.workspace() : Tensor()}};
  if (config.parallel_residual) {
    const auto up =
        normed(w.norm2_weight, w.norm2_bias, operand(w.up, hidden_, inner_, activation));
    layer.before.push_back(launch({qkv, up}, {}, before(0)));
    layer.after.push_back(launch({operand(w.out, context_, hidden_), operand(w.down, inner_, {})},
                                 hidden_, after(0)));
  } else {
    const auto up =
        normed(w.norm2_weight, w.norm2_bias, operand(w.up, between_, inner_, activation));
    layer.before.push_back(launch({qkv}, {}, before(0)));
    layer.after.push_back(launch({operand(w.out, context_, between_)}, hidden_, after(0)));
    layer.after.push_back(launch({up}, {}, after(1)));
    layer.after.push_back(launch({operand(w.down, inner_, hidden_)}, between_, after(2)));
  }
  return layer;
}

void GpuStep::enqueue() const {
  ops::begin_step(embedding_, ids_, lengths_, frequencies_, rule_, hidden_, angles_);
  for (const Layer& layer : layers_) {
    for (const auto& launch : layer.before) launch.enqueue();
    layer.attention.enqueue();
    for (const auto& launch : layer.after) launch.enqueue();
  }
  output_.front().enqueue();
}

}  // namespace seqfuse::models::gpt_neox
