#include "embeddings/update/update_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/parallel.h"

namespace seqfuse::embeddings {
namespace {

// Elementwise rules treat any parameter as rows of this length.
constexpr int64_t kChunk = 4096;

// n consecutive elements; begin: index in the weight and its state, row: index in sum_sq.
template <class T>
void update_elements(const ParameterState& parameter, const UpdateRule& rule, const T* gradient,
                     int64_t begin, int64_t n, int64_t row) {
  T* values = parameter.weight.mutable_data_ptr<T>() + begin;
  if (parameter.is_adam()) {
    adam_row(rule, n, gradient, values, parameter.exp_avg.mutable_data_ptr<T>() + begin,
             parameter.exp_avg_sq.mutable_data_ptr<T>() + begin);
  } else if (parameter.kind == OptimizerKind::sgd) {
    sgd_row(rule, n, gradient, values);
  } else {
    row_wise_adagrad_row(rule, n, gradient, values, parameter.sum_sq.mutable_data_ptr<T>()[row]);
  }
}

template <class T>
void update_dense(const ParameterState& parameter, const UpdateRule& rule,
                  const at::Tensor& gradient) {
  const T* values = gradient.const_data_ptr<T>();
  const int64_t length =
      parameter.kind == OptimizerKind::row_wise_adagrad ? parameter.row_length() : kChunk;
  const int64_t total = parameter.weight.numel();
  parallel_for((total + length - 1) / length, kChunk / length + 1,
               [&](int64_t first, int64_t last) {
                 for (int64_t row = first; row < last; ++row) {
                   const int64_t begin = row * length;
                   update_elements(parameter, rule, values + begin, begin,
                                   std::min(length, total - begin), row);
                 }
               });
}

template <class T>
void update_sparse(const ParameterState& parameter, const UpdateRule& rule,
                   const at::Tensor& gradient) {
  const at::Tensor indices = gradient.indices().select(0, 0).contiguous();
  const at::Tensor values = gradient.values().contiguous();
  const int64_t* rows = indices.const_data_ptr<int64_t>();
  const T* data = values.const_data_ptr<T>();
  const int64_t length = parameter.row_length();
  parallel_for(indices.numel(), kChunk / length + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      update_elements(parameter, rule, data + i * length, rows[i] * length, length, rows[i]);
    }
  });
}

}  // namespace

UpdateStep::UpdateStep(const config::OptimizerArgs& args, int64_t count, double learning_rate,
                       double gradient_scale)
    : args_(args), count_(count), learning_rate_(learning_rate), gradient_scale_(gradient_scale) {}

UpdateRule UpdateStep::rule(OptimizerKind kind, double weight_decay) const {
  const auto count = static_cast<double>(count_);
  const bool decoupled = kind == OptimizerKind::adamw;
  return {.learning_rate = learning_rate_,
          .gradient_scale = gradient_scale_,
          .beta1 = args_.adam_beta1,
          .beta2 = args_.adam_beta2,
          .epsilon = args_.adam_eps,
          .correction1 = 1 - std::pow(args_.adam_beta1, count),
          .correction2 = 1 - std::pow(args_.adam_beta2, count),
          .decay = decoupled ? 0 : weight_decay,
          .shrink = decoupled ? 1 - learning_rate_ * weight_decay : 1};
}

void UpdateStep::update(ParameterState& parameter, const at::Tensor& gradient) {
  const torch::NoGradGuard no_grad;
  if (device_) {
    update_on_device(parameter, gradient);
  } else {
    update_on_cpu(parameter, gradient);
  }
}

void UpdateStep::update_on_cpu(ParameterState& parameter, const at::Tensor& gradient) const {
  if (gradient.defined()) {
    const UpdateRule step_rule = rule(parameter.kind, parameter.weight_decay);
    AT_DISPATCH_FLOATING_TYPES(parameter.weight.scalar_type(), "optimizer_step", [&] {
      if (gradient.is_sparse()) {
        update_sparse<scalar_t>(parameter, step_rule, gradient.coalesce());
      } else {
        update_dense<scalar_t>(parameter, step_rule, gradient.contiguous());
      }
    });
  }
  if (parameter.average.defined()) parameter.average.lerp_(parameter.weight, average_share());
}

// After update t the average moves 1 - min(d, (t - 1) / (t + 8)) of the way to the weight.
double UpdateStep::average_share() const {
  const auto count = static_cast<double>(count_);
  return 1 - std::min(args_.average_decay, (count - 1) / (count + 8));
}

}  // namespace seqfuse::embeddings
