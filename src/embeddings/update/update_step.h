// One update of all parameters of a model, dense weights and embedding tables alike.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "config/args.h"
#include "embeddings/update/parameter_state.h"
#include "embeddings/update/update_rules.h"

namespace seqfuse::embeddings {

// With g the gradient times its scale, t the number of steps, lr the learning rate:
//   adamw, adam        m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//                      w -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
//   sgd                w -= lr * g
//   row_wise_adagrad   a_row += mean of the row's g^2; w -= lr * g / (sqrt(a_row) + eps)
// weight_decay: adamw first scales w by 1 - lr * decay; the others add decay * w to g.
//
// A dense gradient updates every element, as published: Adam moves rows of a table by their
// momentum even when the step had no such id. A sparse gradient (large tables) updates the rows it
// holds and their state, nothing else; t counts all steps.
//
// On the CPU each update is one threaded pass over parameter and state. Every element is computed
// on its own, so results do not depend on the number of threads. On a GPU nothing waits for the
// host, except for the number of rows of a sparse gradient.
class UpdateStep {
 public:
  // The numbers of a step on a GPU: float32 scalars there. If skip is 1 nothing changes.
  struct OnDevice {
    at::Tensor count;  // t, this step included
    at::Tensor learning_rate, gradient_scale, skip;
  };

  // On the CPU. count: t, from 1. args must outlive it.
  UpdateStep(const config::OptimizerArgs& args, int64_t count, double learning_rate,
             double gradient_scale);
  // On a GPU.
  UpdateStep(const config::OptimizerArgs& args, OnDevice device);

  // Updates the parameter and its state (undefined gradient: neither), and moves its average. Dense
  // updates on a GPU wait for finish().
  void update(ParameterState& parameter, const at::Tensor& gradient);
  // Launches the collected updates as a few multi-tensor kernels. Does nothing on the CPU.
  void finish();

  // For tables with their own update loops. On the CPU: the numbers of update_rules.h.
  UpdateRule rule(UpdateKind kind, double weight_decay) const;
  // On a GPU; null on the CPU.
  const OnDevice* device() const { return device_ ? &*device_ : nullptr; }
  const config::OptimizerArgs& args() const { return args_; }

 private:
  // The arguments of a multi-tensor kernel.
  struct Group {
    std::vector<at::Tensor> weights, gradients, exp_avgs, exp_avg_sqs, counts;
  };
  struct Averaged {
    std::vector<at::Tensor> averages, weights;
  };

  void update_on_cpu(ParameterState& parameter, const at::Tensor& gradient) const;
  double average_share() const;

  void update_on_device(ParameterState& parameter, const at::Tensor& gradient);
  // The rows of a coalesced sparse gradient.
  void update_rows_on_device(ParameterState& parameter, const at::Tensor& gradient) const;
  void launch(UpdateKind kind, double weight_decay, Group& group) const;
  void move_averages() const;

  const config::OptimizerArgs& args_;
  int64_t count_ = 0;
  double learning_rate_ = 0, gradient_scale_ = 1;
  std::optional<OnDevice> device_;
  at::Tensor keep_;                             // on the device: bool scalar, not skip
  at::Tensor divisor_;                          // on the device: what kernels divide gradients by
  std::array<std::array<Group, 2>, 3> groups_;  // by kind; without and with weight decay
  Averaged averaged_;
};

}  // namespace seqfuse::embeddings
