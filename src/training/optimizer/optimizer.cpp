#include "training/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace seqfuse::training {

using embeddings::EmbeddingTable;
using embeddings::UpdateStep;

namespace {

constexpr const char* kNormExchange = "exchange of the gradient norm";
constexpr const char* kUnaveraged = ".unaveraged";

}  // namespace

Optimizer::Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args,
                     const embeddings::Tables& tables, distributed::ProcessGroup& group)
    : args_(args), group_(group) {
  const bool averaged = args.average_decay > 0;
  embeddings::Tables others = tables;  // not seen yet
  const auto add_table = [&](EmbeddingTable* table) {
    table->make_state(embeddings::optimizer_of_tables(args), averaged);
    parameters_.push_back({.name = table->name(), .dense = {}, .table = table});
  };
  for (const auto& parameter : module.named_parameters()) {
    const at::Tensor& weight = parameter.value();
    const auto table = std::find_if(others.begin(), others.end(), [&](const auto* each) {
      return each->weight().is_same(weight);
    });
    if (table != others.end()) {
      add_table(*table);
      others.erase(table);
      continue;
    }
    SEQFUSE_CHECK(weight.is_contiguous(), "{} is not contiguous", parameter.key());
    parameters_.push_back({.name = parameter.key(),
                           .dense = embeddings::ParameterState(weight, args.optimizer_str,
                                                               args.weight_decay, averaged),
                           .table = nullptr});
  }
  for (EmbeddingTable* table : others) add_table(table);  // their rows are not parameters
  for (const Parameter& parameter : parameters_) {
    const at::Device device =
        parameter.table ? parameter.table->options().device() : parameter.dense->weight.device();
    if (!device.is_cuda()) continue;
    device_steps_ = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kFloat));
    break;
  }
}

at::Tensor Optimizer::Parameter::gradient() const {
  return table ? table->gradient() : dense->weight.grad();
}

void Optimizer::zero_gradients() {
  for (Parameter& parameter : parameters_) {
    if (parameter.table) {
      parameter.table->zero_gradients();
    } else {
      parameter.dense->weight.mutable_grad().reset();
    }
  }
}

double Optimizer::gradient_norm(double scale) const {
  std::array<double, 2> sums = {};  // of squares: of replicated gradients, of shards
  for (const Parameter& parameter : parameters_) {
    const at::Tensor gradient = parameter.gradient();
    if (!gradient.defined()) continue;
    const double norm = gradient.norm().item<double>();
    sums[parameter.is_shard() ? 1 : 0] += norm * norm;
  }
  if (has_shards()) group_.sum({&sums[1], 1}, kNormExchange);
  return std::sqrt(sums[0] + sums[1]) * scale;
}

at::Tensor Optimizer::gradient_norm_on_device() const {
  std::array<std::vector<at::Tensor>, 2> gradients;  // replicated, of shards
  for (const Parameter& parameter : parameters_) {
    const at::Tensor gradient = parameter.gradient();
    if (gradient.defined()) gradients[parameter.is_shard() ? 1 : 0].push_back(gradient);
  }
  const auto norm_of = [&](const std::vector<at::Tensor>& all) {
    if (all.empty()) return torch::zeros({}, device_steps_.options());
    return at::stack(at::_foreach_norm(all, 2)).norm();
  };
  at::Tensor norm = norm_of(gradients[0]);
  if (!has_shards()) return norm;
  // Squares in float64, since those of a large norm overflow float32.
  const at::Tensor square = norm_of(gradients[1]).to(torch::kDouble).square();
  group_.all_reduce(square, kNormExchange)();
  return (norm.to(torch::kDouble).square() + square).sqrt().to(norm.scalar_type());
}

void Optimizer::step(double learning_rate, double scale) {
  ++steps_;
  update(UpdateStep(args_, steps_, learning_rate, scale));
}

void Optimizer::step_on_device(const at::Tensor& learning_rate, const at::Tensor& scale,
                               const at::Tensor& skip) {
  const torch::NoGradGuard no_grad;
  device_steps_.add_(1 - skip);
  update(UpdateStep(args_, {.count = device_steps_,
                            .learning_rate = learning_rate,
                            .gradient_scale = scale,
                            .skip = skip}));
}

void Optimizer::update(UpdateStep step) {
  for (Parameter& parameter : parameters_) {
    if (parameter.table) {
      parameter.table->apply_gradients(step);
    } else {
      step.update(*parameter.dense, parameter.dense->weight.grad());
    }
  }
  step.finish();
}

embeddings::StateTensors Optimizer::state() const {
  embeddings::StateTensors state;
  for (const Parameter& parameter : parameters_) {
    if (parameter.table) continue;
    for (const auto& [name, tensor] : parameter.dense->tensors()) {
      state[parameter.name + "." + name] = tensor;
    }
  }
  return state;
}

void Optimizer::load_state(const embeddings::StateTensors& given, int64_t steps) {
  for (auto& [name, tensor] : state()) {
    const auto found = given.find(name);
    SEQFUSE_CHECK_AS(DataError, found != given.end() && found->second.sizes() == tensor.sizes(),
                     "the checkpoint's optimiser state has no {} of the model's shape: it was made "
                     "with another optimiser or model",
                     name);
    at::Tensor(tensor).copy_(found->second);
  }
  for (const auto& [name, tensor] : given) {
    SEQFUSE_CHECK_AS(DataError, args_.average_decay > 0 || !name.ends_with(kUnaveraged),
                     "the checkpoint's weights are averages and OptimizerArgs.average_decay is 0: "
                     "set it as it was");
  }
  steps_ = steps;
  if (device_steps_.defined()) device_steps_.fill_(static_cast<double>(steps));
}

int64_t Optimizer::steps() const {
  return device_steps_.defined() ? static_cast<int64_t>(device_steps_.item<float>()) : steps_;
}

void Optimizer::start_averages(bool saved) {
  if (saved) {
    swap_averages();
    return;
  }
  for (Parameter& parameter : parameters_) {
    if (parameter.table) {
      parameter.table->restart_averages();
    } else {
      parameter.dense->restart_average();
    }
  }
}

void Optimizer::swap_averages() {
  for (Parameter& parameter : parameters_) {
    if (parameter.table) {
      parameter.table->swap_averages();
    } else {
      parameter.dense->swap_average();
    }
  }
}

bool Optimizer::has_shards() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const Parameter& parameter) { return parameter.is_shard(); });
}

}  // namespace seqfuse::training
