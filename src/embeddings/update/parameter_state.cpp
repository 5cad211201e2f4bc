#include "embeddings/update/parameter_state.h"

#include <utility>

namespace seqfuse::embeddings {

ParameterState::ParameterState(at::Tensor weight_, OptimizerKind kind_, double weight_decay_,
                               bool averaged)
    : weight(std::move(weight_)), kind(kind_), weight_decay(weight_decay_) {
  const at::Tensor values = weight.detach();
  if (is_adam()) {
    exp_avg = torch::zeros_like(values);
    exp_avg_sq = torch::zeros_like(values);
  } else if (kind == OptimizerKind::row_wise_adagrad) {
    sum_sq = torch::zeros({weight.numel() / row_length()}, values.options());
  }
  if (averaged) average = values.clone();
}

StateTensors ParameterState::tensors() const {
  StateTensors tensors;
  if (exp_avg.defined()) tensors["exp_avg"] = exp_avg;
  if (exp_avg_sq.defined()) tensors["exp_avg_sq"] = exp_avg_sq;
  if (sum_sq.defined()) tensors["sum_sq"] = sum_sq;
  if (average.defined()) tensors["unaveraged"] = average;
  return tensors;
}

void ParameterState::swap_average() {
  if (!average.defined()) return;
  const at::Tensor values = weight.detach();
  weight.set_data(average);
  average = values;
}

void ParameterState::restart_average() {
  const torch::NoGradGuard no_grad;
  if (average.defined()) average.copy_(weight);
}

}  // namespace seqfuse::embeddings
