#include "models/gpt_neox/gpu_step.h"

#include <fmt/format.h>

#include <type_traits>
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

LinearActivation step_activation(const Config& config) {
  return config.activation == Activation::gelu ? LinearActivation::gelu_erf
                                               : LinearActivation::gelu_tanh;
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
  if (dim % ops::kStepHeadDimGrain != 0 || dim > ops::kMaxStepHeadDim) {
    return fmt::format("head_dim is {}; expected a multiple of {}, at most {}", dim,
                       ops::kStepHeadDimGrain, ops::kMaxStepHeadDim);
  }
  if (!ops::step_attention_fits(dim, model.device())) {
    return fmt::format("head_dim is {}; this GPU has too little shared memory for it", dim);
  }
  return "";
}

GpuStep::GpuStep(const Model& model, kv_cache::Cache& cache, const StepOptions& options)
    : model_(model),
      cache_(cache),
      options_(options),
      rule_(step_rule(cache.rule())),
      frequencies_(cache.rotary().frequencies()) {
  const Config& config = model.config();
  const int64_t rows = cache.rows(), h = config.hidden_size;
  const auto tensor_options = model.weights().norm_weight.options();
  const auto zeros = [&](int64_t size) { return at::zeros({rows, size}, tensor_options); };
  ids_ = at::zeros({rows}, tensor_options.dtype(at::kLong));
  logits_ = zeros(config.vocab_size);
  if (!options.own_kernels) return;
  hidden_ = zeros(h);
  between_ = zeros(h);
  normed_ = zeros(h);
  normed_for_mlp_ = zeros(h);
  qkv_ = zeros(3 * h);
  inner_ = zeros(config.intermediate_size);
  context_ = zeros(h);
  attended_ = zeros(h);
  mlp_ = zeros(h);
  angles_ = at::zeros({rows, 2, 2, frequencies_.size(0)}, tensor_options);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.parallel_residual ? add_parallel_layer(layer) : add_sequential_layer(layer);
  }
  add_output();
}

std::vector<ops::StepNorm> GpuStep::norms_of(int64_t layer) const {
  const Weights& weights = model_.weights();
  if (layer == model_.config().num_layers) {
    return {{weights.norm_weight, weights.norm_bias, normed_}};
  }
  const LayerWeights& w = weights.layers[layer];
  return {{w.norm1_weight, w.norm1_bias, normed_}, {w.norm2_weight, w.norm2_bias, normed_for_mlp_}};
}

void GpuStep::add_norms(const Tensor& x, const std::vector<ops::StepNorm>& norms) {
  const double eps = model_.config().layer_norm_eps;
  if (options_.fused_norms) {
    launches_.emplace_back(ops::StepNormLaunch(x, norms, eps, options_.early_starts));
    return;
  }
  for (const ops::StepNorm& norm : norms) {
    launches_.emplace_back(ops::StepNormLaunch(x, {norm}, eps, options_.early_starts));
  }
}

void GpuStep::add_linears(const std::vector<ops::StepOperand>& operands, const Tensor& residual) {
  if (options_.merged_linears || residual.defined()) {
    launches_.emplace_back(ops::StepLinearLaunch(operands, residual, options_.early_starts));
    return;
  }
  for (const ops::StepOperand& operand : operands) {
    launches_.emplace_back(ops::StepLinearLaunch({operand}, {}, options_.early_starts));
  }
}

void GpuStep::add_attention(int64_t layer) {
  ops::StepAttentionLaunch attention(qkv_, cache_.keys(layer), cache_.values(layer),
                                     cache_.lengths_on_device(), angles_, context_, rule_,
                                     workspace_, options_.early_starts);
  workspace_ = attention.workspace();
  launches_.emplace_back(std::move(attention));
}

void GpuStep::add_parallel_layer(int64_t layer) {
  const LayerWeights& w = model_.weights().layers[layer];
  // With fused norms but separate linear layers, one launch adds the branches and computes the next norms.
  const bool sums_with_norms = options_.fused_norms && !options_.merged_linears;
  if (layer == 0 || !sums_with_norms) add_norms(hidden_, norms_of(layer));
  add_linears({operand(w.qkv, normed_, qkv_),
               operand(w.up, normed_for_mlp_, inner_, step_activation(model_.config()))});
  add_attention(layer);
  if (options_.fused_norms && options_.merged_linears) {
    add_linears({operand(w.out, context_, hidden_), operand(w.down, inner_, {})}, hidden_);
    return;
  }
  add_linears({operand(w.out, context_, attended_), operand(w.down, inner_, mlp_)});
  if (sums_with_norms) {
    launches_.emplace_back(ops::StepSumNormLaunch(mlp_, attended_, hidden_, norms_of(layer + 1),
                                                  model_.config().layer_norm_eps));
  } else {
    launches_.emplace_back(Sum{mlp_, attended_, between_});
    launches_.emplace_back(Sum{between_, hidden_, hidden_});
  }
}

void GpuStep::add_sequential_layer(int64_t layer) {
  const LayerWeights& w = model_.weights().layers[layer];
  const auto norms = norms_of(layer);
  const auto add_to = [&](const ops::StepOperand& linear, const Tensor& residual) {
    if (options_.fused_norms) return add_linears({linear}, residual);
    const Tensor sum = linear.y;
    ops::StepOperand alone = linear;
    alone.y = mlp_;
    add_linears({alone});
    launches_.emplace_back(Sum{mlp_, residual, sum});
  };
  add_norms(hidden_, {norms[0]});
  add_linears({operand(w.qkv, normed_, qkv_)});
  add_attention(layer);
  add_to(operand(w.out, context_, between_), hidden_);
  add_norms(between_, {norms[1]});
  add_linears({operand(w.up, normed_for_mlp_, inner_, step_activation(model_.config()))});
  add_to(operand(w.down, inner_, hidden_), between_);
}

void GpuStep::add_output() {
  const Config& config = model_.config();
  const bool normed = config.parallel_residual && options_.fused_norms && !options_.merged_linears;
  if (!normed) add_norms(hidden_, norms_of(config.num_layers));
  add_linears({operand(model_.weights().output, normed_, logits_)});
}

void GpuStep::enqueue() {
  if (!options_.own_kernels) {
    cache_.begin_step_on_device();
    logits_.copy_(model_.logits(model_.states(ids_.unsqueeze(1), cache_).select(1, 0)));
    return;
  }
  ops::begin_step(model_.weights().embedding, ids_, cache_.lengths_on_device(), frequencies_, rule_,
                  hidden_, angles_, options_.early_starts);
  for (const Launch& launch : launches_) {
    std::visit(
        []<class L>(const L& l) {
          if constexpr (std::is_same_v<L, Sum>) {
            Tensor to = l.to;
            at::add_out(to, l.a, l.b);
          } else {
            l.enqueue();
          }
        },
        launch);
  }
}

}  // namespace seqfuse::models::gpt_neox
