#include "training/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/parallel.h"
#include "training/update_rules.h"

namespace seqfuse::training {
namespace {

enum class Kind { adamw, adam, sgd, row_wise_adagrad };

Kind parse_kind(const std::string& name, const char* parameter) {
  static const std::array<std::string, 4> names = {"adamw", "adam", "sgd", "row_wise_adagrad"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Kind>(i);
  }
  throw_error<UsageError>(
      "OptimizerArgs.{} is '{}'{}: expected adamw, adam, sgd or row_wise_adagrad", parameter, name,
      did_you_mean(name, names));
}

// Elementwise rules treat any parameter as rows of this length.
constexpr int64_t kChunk = 4096;

}  // namespace

struct Optimizer::Entry {
  std::string name;
  at::Tensor weight;
  bool table = false;
  Kind kind = Kind::adamw;
  at::Tensor exp_avg, exp_avg_sq;  // adam: the weight's shape
  at::Tensor sum_sq;               // row_wise_adagrad: [rows]

  int64_t row_length() const { return weight.dim() == 0 ? 1 : weight.size(-1); }
  bool is_adam() const { return kind == Kind::adamw || kind == Kind::adam; }

  // Updates n consecutive elements; begin: of the weight and its state, row: for sum_sq.
  template <class T>
  void update(const UpdateRule& rule, const T* gradient, int64_t begin, int64_t n, int64_t row) {
    T* values = weight.mutable_data_ptr<T>() + begin;
    if (is_adam()) {
      adam_row(rule, n, gradient, values, exp_avg.mutable_data_ptr<T>() + begin,
               exp_avg_sq.mutable_data_ptr<T>() + begin);
    } else if (kind == Kind::sgd) {
      sgd_row(rule, n, gradient, values);
    } else {
      row_wise_adagrad_row(rule, n, gradient, values, sum_sq.mutable_data_ptr<T>()[row]);
    }
  }

  template <class T>
  void update_dense(const UpdateRule& rule, const at::Tensor& gradient) {
    const T* values = gradient.const_data_ptr<T>();
    const int64_t length = kind == Kind::row_wise_adagrad ? row_length() : kChunk;
    const int64_t total = weight.numel();
    parallel_for((total + length - 1) / length, kChunk / length + 1,
                 [&](int64_t first, int64_t last) {
                   for (int64_t row = first; row < last; ++row) {
                     const int64_t begin = row * length;
                     update(rule, values + begin, begin, std::min(length, total - begin), row);
                   }
                 });
  }

  template <class T>
  void update_sparse(const UpdateRule& rule, const at::Tensor& gradient) {
    const at::Tensor indices = gradient.indices().select(0, 0).contiguous();
    const at::Tensor values = gradient.values().contiguous();
    const int64_t* rows = indices.const_data_ptr<int64_t>();
    const T* data = values.const_data_ptr<T>();
    const int64_t length = row_length();
    parallel_for(indices.numel(), kChunk / length + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        update(rule, data + i * length, rows[i] * length, length, rows[i]);
      }
    });
  }
};

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args)
    : args_(args) {
  const Kind dense = parse_kind(args.optimizer_str, "optimizer_str");
  const Kind tables = args.embedding_optimizer_str.empty()
                          ? dense
                          : parse_kind(args.embedding_optimizer_str, "embedding_optimizer_str");
  for (const auto& parameter : module.named_parameters()) {
    Entry entry{.name = parameter.key(), .weight = parameter.value()};
    entry.table = entry.name.starts_with("tables.");
    entry.kind = entry.table ? tables : dense;
    SEQFUSE_CHECK(entry.weight.is_contiguous(), "{} is not contiguous", entry.name);
    // State exists before the first step, so that a step allocates next to nothing.
    if (entry.is_adam()) {
      entry.exp_avg = torch::zeros_like(entry.weight.detach());
      entry.exp_avg_sq = torch::zeros_like(entry.weight.detach());
    } else if (entry.kind == Kind::row_wise_adagrad) {
      entry.sum_sq =
          torch::zeros({entry.weight.numel() / entry.row_length()}, entry.weight.scalar_type());
    }
    entries_.push_back(std::move(entry));
  }
}

void Optimizer::zero_gradients() {
  for (Entry& entry : entries_) entry.weight.mutable_grad().reset();
}

double Optimizer::gradient_norm(double scale) const {
  double sum = 0;
  for (const Entry& entry : entries_) {
    at::Tensor gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.coalesce().values();
    const double norm = gradient.norm().item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum) * scale;
}

void Optimizer::step(double learning_rate, double scale) {
  const torch::NoGradGuard no_grad;
  ++steps_;
  const auto count = static_cast<double>(steps_);
  UpdateRule rule{.learning_rate = learning_rate, .gradient_scale = scale};
  rule.beta1 = args_.adam_beta1;
  rule.beta2 = args_.adam_beta2;
  rule.epsilon = args_.adam_eps;
  rule.correction1 = 1 - std::pow(args_.adam_beta1, count);
  rule.correction2 = 1 - std::pow(args_.adam_beta2, count);
  for (Entry& entry : entries_) {
    const at::Tensor gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    const double decay = entry.table ? 0 : args_.weight_decay;
    rule.shrink = entry.kind == Kind::adamw ? 1 - learning_rate * decay : 1;
    rule.decay = entry.kind == Kind::adamw ? 0 : decay;
    AT_DISPATCH_FLOATING_TYPES(entry.weight.scalar_type(), "optimizer_step", [&] {
      if (gradient.is_sparse()) {
        entry.update_sparse<scalar_t>(rule, gradient.coalesce());
      } else {
        entry.update_dense<scalar_t>(rule, gradient.contiguous());
      }
    });
  }
}

TensorMap Optimizer::state() const {
  TensorMap state;
  for (const Entry& entry : entries_) {
    if (entry.exp_avg.defined()) state[entry.name + ".exp_avg"] = entry.exp_avg;
    if (entry.exp_avg_sq.defined()) state[entry.name + ".exp_avg_sq"] = entry.exp_avg_sq;
    if (entry.sum_sq.defined()) state[entry.name + ".sum_sq"] = entry.sum_sq;
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
  steps_ = steps;
}

}  // namespace seqfuse::training
