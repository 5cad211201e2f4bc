// The optimiser's step on a GPU: PyTorch's multi-tensor kernels for dense gradients, tensor
// operations for the rest.
#include <torch/types.h>

#include <array>
#include <vector>

#include "training/optimizer/optimizer_entry.h"

namespace seqfuse::training {
namespace {

using at::Tensor;

// The arguments of a multi-tensor kernel.
struct Group {
  std::vector<Tensor> weights, gradients, exp_avgs, exp_avg_sqs, steps;
};

// Sets w to w - rate * g / (sqrt(a) + eps) after a has taken the mean of the row's g^2.
void row_wise_adagrad(const Tensor& weight, const Tensor& sum_sq, const Tensor& gradient,
                      const Tensor& rate, double epsilon) {
  sum_sq.add_(gradient.square().mean(1));
  weight.sub_(gradient.mul(rate).div_(sum_sq.sqrt().add_(epsilon).unsqueeze(1)));
}

}  // namespace

Tensor Optimizer::gradient_norm_on_device() const {
  std::array<std::vector<Tensor>, 2> gradients;  // that all processes have alike, of shards
  for (const Entry& entry : entries_) {
    const Tensor gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    // Rows of one id are added up when they are applied, so their norm is that of the sum.
    gradients[entry.shard ? 1 : 0].push_back(gradient.is_sparse() ? gradient.coalesce().values()
                                                                  : gradient);
  }
  const auto norm_of = [&](const std::vector<Tensor>& all) {
    if (all.empty()) return torch::zeros({}, device_steps_.options());
    return at::stack(at::_foreach_norm(all, 2)).norm();
  };
  Tensor norm = norm_of(gradients[0]);
  if (!has_shards()) return norm;
  // Squares in float64: those of a large norm do not fit float32.
  const Tensor square = norm_of(gradients[1]).to(torch::kDouble).square();
  group_.all_reduce(square, kNormExchange)();
  return (norm.to(torch::kDouble).square() + square).sqrt().to(norm.scalar_type());
}

void Optimizer::step_on_device(const Tensor& learning_rate, const Tensor& scale,
                               const Tensor& skip) {
  const torch::NoGradGuard no_grad;
  device_steps_.add_(1 - skip);
  const Tensor divisor = scale.reciprocal();  // what the kernels divide gradients by
  const Tensor keep = skip.eq(0);
  // A group for each kind, of what has no weight decay and of what has some.
  std::array<std::array<Group, 2>, 3> groups;
  for (Entry& entry : entries_) {
    const Tensor gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) {
      step_rows(entry, gradient.coalesce(), learning_rate, scale, keep);
    } else if (entry.kind == Entry::Kind::row_wise_adagrad) {
      // Where the step is skipped the gradient is 0 and changes nothing.
      Tensor scaled = at::where(keep, gradient * scale, 0.0);
      if (const double decay = decay_of(entry); decay > 0) scaled.add_(entry.weight * keep, decay);
      const int64_t length = entry.row_length();
      row_wise_adagrad(entry.weight.view({-1, length}), entry.sum_sq, scaled.view({-1, length}),
                       learning_rate, args_.adam_eps);
    } else {
      Group& group = groups[static_cast<size_t>(entry.kind)][decay_of(entry) > 0 ? 1 : 0];
      group.weights.push_back(entry.weight);
      group.gradients.push_back(gradient);
      group.steps.push_back(device_steps_);
      if (entry.is_adam()) {
        group.exp_avgs.push_back(entry.exp_avg);
        group.exp_avg_sqs.push_back(entry.exp_avg_sq);
      }
    }
  }
  for (const auto kind : {Entry::Kind::adamw, Entry::Kind::adam, Entry::Kind::sgd}) {
    for (const bool decays : {false, true}) {
      Group& group = groups[static_cast<size_t>(kind)][decays ? 1 : 0];
      if (group.weights.empty()) continue;
      const double decay = decays ? args_.weight_decay : 0;
      if (kind == Entry::Kind::sgd) {
        at::_fused_sgd_(group.weights, group.gradients, {}, decay, /*momentum=*/0, learning_rate,
                        /*dampening=*/0,
                        /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, divisor,
                        skip);
        continue;
      }
      const auto adam = [&](auto&& update) {
        update(group.weights, group.gradients, group.exp_avgs, group.exp_avg_sqs, at::TensorList(),
               group.steps, learning_rate, args_.adam_beta1, args_.adam_beta2, decay,
               args_.adam_eps, /*amsgrad=*/false,
               /*maximize=*/false, divisor, skip);
      };
      if (kind == Entry::Kind::adamw) {
        adam([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
      } else {
        adam([](auto&&... arguments) { at::_fused_adam_(arguments...); });
      }
    }
  }
  if (args_.average_decay > 0) {
    const Tensor before = device_steps_ - 1;
    const Tensor share = 1 - (before / (before + 9)).clamp_max_(args_.average_decay);
    update_averages(share * (1 - skip));
  }
}

void Optimizer::update_averages(const Tensor& share) {
  std::vector<Tensor> averages, weights;
  for (Entry& entry : entries_) {
    averages.push_back(entry.average);
    weights.push_back(entry.weight);
  }
  std::vector<Tensor> moves = at::_foreach_sub(weights, averages);
  at::_foreach_mul_(moves, share);
  at::_foreach_add_(averages, moves);
}

void Optimizer::step_rows(Entry& entry, const Tensor& gradient, const Tensor& learning_rate,
                          const Tensor& scale, const Tensor& keep) {
  const Tensor ids = gradient.indices().select(0, 0);
  const Tensor rows = at::where(keep, gradient.values() * scale, 0.0);
  if (entry.kind == Entry::Kind::sgd) {
    entry.weight.index_add_(0, ids, rows * learning_rate, -1);
    return;
  }
  // The rows' state is taken out, updated and put back; where the step is skipped it is put back as
  // it was.
  Tensor weight = entry.weight.index_select(0, ids);
  const auto put_back = [&](Tensor& whole, const Tensor& old, const Tensor& updated) {
    whole.index_copy_(0, ids, at::where(keep, updated, old));
  };
  if (entry.kind == Entry::Kind::row_wise_adagrad) {
    Tensor sum_sq = entry.sum_sq.index_select(0, ids);
    row_wise_adagrad(weight, sum_sq, rows, learning_rate, args_.adam_eps);
    entry.weight.index_copy_(0, ids, weight);
    entry.sum_sq.index_copy_(0, ids, sum_sq);
    return;
  }
  // 1 - beta2, and 1 - beta2^t, of a float32 would be good to 4 digits.
  const Tensor steps = device_steps_.to(torch::kDouble);
  const Tensor correction1 = 1 - at::pow(args_.adam_beta1, steps);
  const Tensor correction2 = 1 - at::pow(args_.adam_beta2, steps);
  const Tensor old_avg = entry.exp_avg.index_select(0, ids),
               old_sq = entry.exp_avg_sq.index_select(0, ids);
  const Tensor avg = at::lerp(old_avg, rows, 1 - args_.adam_beta1);
  const Tensor sq = at::lerp(old_sq, rows.square(), 1 - args_.adam_beta2);
  const Tensor denominator = (sq / correction2).sqrt_().add_(args_.adam_eps);
  put_back(entry.weight, weight,
           weight - avg / denominator * (learning_rate.to(torch::kDouble) / correction1));
  put_back(entry.exp_avg, old_avg, avg);
  put_back(entry.exp_avg_sq, old_sq, sq);
}

}  // namespace seqfuse::training
