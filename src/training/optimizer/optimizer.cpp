#include "training/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "training/optimizer/optimizer_entry.h"

namespace seqfuse::training {
namespace {

constexpr const char* kUnaveraged = ".unaveraged";

// The kind in the order of Optimizer::Entry::Kind.
size_t parse_kind(const std::string& name, const char* parameter) {
  static const std::array<std::string, 4> names = {"adamw", "adam", "sgd", "row_wise_adagrad"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return i;
  }
  throw_error<UsageError>(
      "OptimizerArgs.{} is '{}'{}: expected adamw, adam, sgd or row_wise_adagrad", parameter, name,
      did_you_mean(name, names));
}

}  // namespace

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args,
                     const embeddings::Tables& tables, distributed::ProcessGroup& group)
    : args_(args), group_(group) {
  using Kind = Entry::Kind;
  const auto dense = static_cast<Kind>(parse_kind(args.optimizer_str, "optimizer_str"));
  const Kind table_kind =
      args.embedding_optimizer_str.empty()
          ? dense
          : static_cast<Kind>(parse_kind(args.embedding_optimizer_str, "embedding_optimizer_str"));
  for (const auto& parameter : module.named_parameters()) {
    Entry entry{.name = parameter.key(), .weight = parameter.value()};
    entry.table = entry.name.starts_with("tables.");
    entry.kind = entry.table ? table_kind : dense;
    entry.shard = std::any_of(tables.begin(), tables.end(), [&](const auto* table) {
      return table->is_sharded() && table->weight().is_same(entry.weight);
    });
    SEQFUSE_CHECK(entry.weight.is_contiguous(), "{} is not contiguous", entry.name);
    // State exists before the first step, so that a step allocates next to nothing.
    if (entry.is_adam()) {
      entry.exp_avg = torch::zeros_like(entry.weight.detach());
      entry.exp_avg_sq = torch::zeros_like(entry.weight.detach());
    } else if (entry.kind == Kind::row_wise_adagrad) {
      entry.sum_sq = torch::zeros({entry.weight.numel() / entry.row_length()},
                                  entry.weight.detach().options());
    }
    if (args.average_decay > 0) entry.average = entry.weight.detach().clone();
    entries_.push_back(std::move(entry));
  }
  if (!entries_.empty() && entries_[0].weight.is_cuda()) {
    device_steps_ =
        torch::zeros({}, torch::TensorOptions(entries_[0].weight.device()).dtype(torch::kFloat));
  }
}

void Optimizer::zero_gradients() {
  for (Entry& entry : entries_) entry.weight.mutable_grad().reset();
}

double Optimizer::gradient_norm(double scale) const {
  std::array<double, 2> sums = {};  // of squares: of what all processes have alike, of shards
  for (const Entry& entry : entries_) {
    at::Tensor gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce().values();
    const double norm = gradient.norm().item<double>();
    sums[entry.shard ? 1 : 0] += norm * norm;
  }
  if (has_shards()) group_.sum({&sums[1], 1}, kNormExchange);
  return std::sqrt(sums[0] + sums[1]) * scale;
}

TensorMap Optimizer::state() const {
  TensorMap state;
  for (const Entry& entry : entries_) {
    if (entry.exp_avg.defined()) state[entry.name + ".exp_avg"] = entry.exp_avg;
    if (entry.exp_avg_sq.defined()) state[entry.name + ".exp_avg_sq"] = entry.exp_avg_sq;
    if (entry.sum_sq.defined()) state[entry.name + ".sum_sq"] = entry.sum_sq;
    if (entry.average.defined()) state[entry.name + kUnaveraged] = entry.average;
  }
  return state;
}

void Optimizer::load_state(const TensorMap& given, int64_t steps) {
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

void Optimizer::update_averages(double share) {
  for (Entry& entry : entries_) entry.average.lerp_(entry.weight, share);
}

void Optimizer::start_averages(bool saved) {
  if (args_.average_decay == 0) return;
  if (saved) {
    swap_averages();
  } else {
    const torch::NoGradGuard no_grad;
    for (Entry& entry : entries_) entry.average.copy_(entry.weight);
  }
}

void Optimizer::swap_averages() {
  if (args_.average_decay == 0) return;
  // Storage changes hands, so that nothing is allocated where memory has run out.
  for (Entry& entry : entries_) {
    const at::Tensor weight = entry.weight.detach();
    entry.weight.set_data(entry.average);
    entry.average = weight;
  }
}

bool Optimizer::has_shards() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.shard; });
}

double Optimizer::decay_of(const Entry& entry) const {
  return entry.table ? 0 : args_.weight_decay;
}

}  // namespace seqfuse::training
