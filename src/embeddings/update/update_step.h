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

inline OptimizerKind optimizer_of_tables(const config::OptimizerArgs& args) {
  return args.embedding_optimizer_str.value_or(args.optimizer_str);
}

// With g the gradient times its scale, t the number of steps, lr the learning rate:
//   adamw, adam        m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//                      w -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
//   sgd                w -= lr * g
//   row_wise_adagrad   a_row += mean of the row's g^2; w -= lr * g / (sqrt(a_row) + eps)
// weight_decay: adamw first scales w by 1 - lr * decay; the others add decay * w to g.
//
// A dense gradient updates every element, as published: Adam moves a table's rows by their momentum
// even in steps without such an id. A sparse gradient (large tables) updates only the rows it
// contains and their state; t counts all steps.
//
// On the CPU each update is one multithreaded pass over parameter and state. Elements are
// independent, so results do not depend on the number of threads. On a GPU nothing synchronises,
// except to learn the number of rows of a sparse gradient.
class UpdateStep {
 public:
  // A step's numbers on a GPU, as float32 scalars there. If skip is 1, nothing changes.
  struct OnDevice {
    at::Tensor count;  // t, including this step
    at::Tensor learning_rate, gradient_scale, skip;
  };

  // On the CPU. count: t, from 1. args must outlive it.
  UpdateStep(const config::OptimizerArgs& args, int64_t count, double learning_rate,
             double gradient_scale);
  // On a GPU.
  UpdateStep(const config::OptimizerArgs& args, OnDevice device);

  // Updates the parameter and its state (unless gradient is undefined), and moves its average.
  // Dense updates on a GPU are deferred to finish().
  void update(ParameterState& parameter, const at::Tensor& gradient);
  // Launches the collected updates as a few multi-tensor kernels. Does nothing on the CPU.
  void finish();

  // For tables with their own update loops. On the CPU: the numbers for update_rules.h.
  UpdateRule rule(OptimizerKind kind, double weight_decay) const;
  // For the same on a GPU; null on the CPU.
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
  void launch(OptimizerKind kind, double weight_decay, Group& group) const;
  void move_averages() const;

  const config::OptimizerArgs& args_;
  int64_t count_ = 0;
  double learning_rate_ = 0, gradient_scale_ = 1;
  std::optional<OnDevice> device_;
  at::Tensor keep_;                             // on the device: bool scalar, not skip
  at::Tensor divisor_;                          // on the device: divisor of gradients in kernels
  std::array<std::array<Group, 2>, 3> groups_;  // by kind; without and with weight decay
  Averaged averaged_;
};

}  // namespace seqfuse::embeddings
