// The optimiser's step on the CPU.
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "training/optimizer/optimizer_entry.h"

namespace seqfuse::training {
namespace {

// Elementwise rules treat any parameter as rows of this length.
constexpr int64_t kChunk = 4096;

}  // namespace

template <class T>
void Optimizer::Entry::update(const UpdateRule& rule, const T* gradient, int64_t begin, int64_t n,
                              int64_t row) {
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
void Optimizer::Entry::update_dense(const UpdateRule& rule, const at::Tensor& gradient) {
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
void Optimizer::Entry::update_sparse(const UpdateRule& rule, const at::Tensor& gradient) {
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
    const double decay = decay_of(entry);
    const bool decoupled = entry.kind == Entry::Kind::adamw;
    rule.shrink = decoupled ? 1 - learning_rate * decay : 1;
    rule.decay = decoupled ? 0 : decay;
    AT_DISPATCH_FLOATING_TYPES(entry.weight.scalar_type(), "optimizer_step", [&] {
      if (gradient.is_sparse()) {
        entry.update_sparse<scalar_t>(rule, gradient.coalesce());
      } else {
        entry.update_dense<scalar_t>(rule, gradient.contiguous());
      }
    });
  }
  if (args_.average_decay > 0) {
    update_averages(1 - std::min(args_.average_decay, (count - 1) / (count + 8)));
  }
}

}  // namespace seqfuse::training
