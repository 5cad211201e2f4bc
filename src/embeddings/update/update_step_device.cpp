// UpdateStep on a GPU: PyTorch's multi-tensor kernels for dense gradients, tensor operations for the
// rest.
#include <utility>

#include "embeddings/update/update_step.h"

namespace seqfuse::embeddings {
namespace {

using at::Tensor;

// Sets w to w - rate * g / (sqrt(a) + eps) after a has taken the mean of the row's g^2.
void row_wise_adagrad(const Tensor& weight, const Tensor& sum_sq, const Tensor& gradient,
                      const Tensor& rate, double epsilon) {
  sum_sq.add_(gradient.square().mean(1));
  weight.sub_(gradient.mul(rate).div_(sum_sq.sqrt().add_(epsilon).unsqueeze(1)));
}

}  // namespace

UpdateStep::UpdateStep(const config::OptimizerArgs& args, OnDevice device)
    : args_(args),
      device_(std::move(device)),
      keep_(device_->skip.eq(0)),
      divisor_(device_->gradient_scale.reciprocal()) {}

void UpdateStep::update_on_device(ParameterState& parameter, const Tensor& gradient) {
  if (parameter.average.defined()) {
    averaged_.averages.push_back(parameter.average);
    averaged_.weights.push_back(parameter.weight);
  }
  if (!gradient.defined()) return;
  if (gradient.is_sparse()) {
    update_rows_on_device(parameter, gradient.coalesce());
  } else if (parameter.kind == OptimizerKind::row_wise_adagrad) {
    // In a skipped step the gradient is 0 and changes nothing.
    Tensor scaled = at::where(keep_, gradient * device_->gradient_scale, 0.0);
    if (parameter.weight_decay > 0) scaled.add_(parameter.weight * keep_, parameter.weight_decay);
    const int64_t length = parameter.row_length();
    row_wise_adagrad(parameter.weight.view({-1, length}), parameter.sum_sq,
                     scaled.view({-1, length}), device_->learning_rate, args_.adam_eps);
  } else {
    Group& group = groups_[static_cast<size_t>(parameter.kind)][parameter.weight_decay > 0 ? 1 : 0];
    group.weights.push_back(parameter.weight);
    group.gradients.push_back(gradient);
    group.counts.push_back(device_->count);
    if (parameter.is_adam()) {
      group.exp_avgs.push_back(parameter.exp_avg);
      group.exp_avg_sqs.push_back(parameter.exp_avg_sq);
    }
  }
}

void UpdateStep::update_rows_on_device(ParameterState& parameter, const Tensor& gradient) const {
  const Tensor ids = gradient.indices().select(0, 0);
  const Tensor rows = at::where(keep_, gradient.values() * device_->gradient_scale, 0.0);
  if (parameter.kind == OptimizerKind::sgd) {
    parameter.weight.index_add_(0, ids, rows * device_->learning_rate, -1);
    return;
  }
  // Take the rows' state out, update it and put it back; in a skipped step, unchanged.
  const Tensor weight = parameter.weight.index_select(0, ids);
  if (parameter.kind == OptimizerKind::row_wise_adagrad) {
    const Tensor sum_sq = parameter.sum_sq.index_select(0, ids);
    row_wise_adagrad(weight, sum_sq, rows, device_->learning_rate, args_.adam_eps);
    parameter.weight.index_copy_(0, ids, weight);
    parameter.sum_sq.index_copy_(0, ids, sum_sq);
    return;
  }
  const auto put_back = [&](Tensor& whole, const Tensor& old, const Tensor& updated) {
    whole.index_copy_(0, ids, at::where(keep_, updated, old));
  };
  // Use float64: in float32, 1 - beta2 and 1 - beta2^t would have only 4 correct digits.
  const Tensor count = device_->count.to(torch::kDouble);
  const Tensor correction1 = 1 - at::pow(args_.adam_beta1, count);
  const Tensor correction2 = 1 - at::pow(args_.adam_beta2, count);
  const Tensor old_avg = parameter.exp_avg.index_select(0, ids),
               old_sq = parameter.exp_avg_sq.index_select(0, ids);
  const Tensor avg = at::lerp(old_avg, rows, 1 - args_.adam_beta1);
  const Tensor sq = at::lerp(old_sq, rows.square(), 1 - args_.adam_beta2);
  const Tensor denominator = (sq / correction2).sqrt_().add_(args_.adam_eps);
  put_back(parameter.weight, weight,
           weight - avg / denominator * (device_->learning_rate.to(torch::kDouble) / correction1));
  put_back(parameter.exp_avg, old_avg, avg);
  put_back(parameter.exp_avg_sq, old_sq, sq);
}

void UpdateStep::finish() {
  if (!device_) return;
  const torch::NoGradGuard no_grad;
  for (const auto kind : {OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::sgd}) {
    for (const bool decays : {false, true}) {
      Group group = std::exchange(groups_[static_cast<size_t>(kind)][decays ? 1 : 0], {});
      if (!group.weights.empty()) launch(kind, decays ? args_.weight_decay : 0, group);
    }
  }
  if (!averaged_.averages.empty()) move_averages();
}

void UpdateStep::launch(OptimizerKind kind, double weight_decay, Group& group) const {
  if (kind == OptimizerKind::sgd) {
    at::_fused_sgd_(group.weights, group.gradients, {}, weight_decay, /*momentum=*/0,
                    device_->learning_rate, /*dampening=*/0, /*nesterov=*/false,
                    /*maximize=*/false, /*is_first_step=*/false, divisor_, device_->skip);
    return;
  }
  const auto adam = [&](auto&& update) {
    update(group.weights, group.gradients, group.exp_avgs, group.exp_avg_sqs, at::TensorList(),
           group.counts, device_->learning_rate, args_.adam_beta1, args_.adam_beta2, weight_decay,
           args_.adam_eps, /*amsgrad=*/false, /*maximize=*/false, divisor_, device_->skip);
  };
  if (kind == OptimizerKind::adamw) {
    adam([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    adam([](auto&&... arguments) { at::_fused_adam_(arguments...); });
  }
}

// UpdateStep::average_share, computed on the device.
void UpdateStep::move_averages() const {
  const Tensor before = device_->count - 1;
  const Tensor share = 1 - (before / (before + 9)).clamp_max_(args_.average_decay);
  std::vector<Tensor> moves = at::_foreach_sub(averaged_.weights, averaged_.averages);
  at::_foreach_mul_(moves, share * (1 - device_->skip));
  at::_foreach_add_(averaged_.averages, moves);
}

}  // namespace seqfuse::embeddings
