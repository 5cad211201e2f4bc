// AdamW, Adam, SGD and row-wise Adagrad over a model's parameters; embedding tables may have their
// own.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/args.h"
#include "embeddings/table.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

// With g the gradient, t the number of steps, lr the learning rate:
//   adamw, adam        m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//                      w -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
//   sgd                w -= lr * g
//   row_wise_adagrad   a_row += mean of the row's g^2; w -= lr * g / (sqrt(a_row) + eps)
// weight_decay: adamw first scales w by 1 - lr * decay; the others add decay * w to g. Never on
// tables. Rows run along the last dimension; a parameter of one dimension is one row.
//
// A dense gradient updates every element, as published: Adam moves rows of a table by their
// momentum even when the step had no such id. A sparse gradient (large tables) updates the rows it
// holds and their state, nothing else; t counts all steps.
//
// Each update is one threaded pass over parameters and state. Every element is computed on its own,
// so results do not depend on the number of threads.
class Optimizer {
 public:
  // Parameters whose names begin with "tables." are tables; of those in tables that are sharded
  // each process of group updates its own rows. Throws UsageError on an unknown optimiser.
  Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args,
            const embeddings::Tables& tables = {},
            distributed::ProcessGroup& group = distributed::ProcessGroup::single());
  ~Optimizer();

  void zero_gradients();
  // The 2-norm of all gradients together, those of sharded tables in all processes, times scale.
  // With sharded tables every process calls it.
  double gradient_norm(double scale) const;
  // Updates with gradients times scale. Parameters without a gradient are left alone. CPU.
  void step(double learning_rate, double scale);

  // The same for parameters on a GPU, without waiting for it. All arguments are float32 scalars on
  // the device; where skip is 1 nothing changes, the number of steps neither. (Of a sparse gradient
  // the number of rows is read back.)
  at::Tensor gradient_norm_on_device() const;
  void step_on_device(const at::Tensor& learning_rate, const at::Tensor& scale,
                      const at::Tensor& skip);

  // While it lives, the module's weights are their averages over the updates (average_decay d:
  // after update t the average goes 1 - min(d, (t - 1) / (t + 8)) of the way to the weights, so
  // that it does not remember where they began). Nothing without average_decay. What is evaluated
  // and saved are averages; state() then holds the weights themselves, "NAME.unaveraged".
  class Averages {
   public:
    explicit Averages(Optimizer& optimizer) : optimizer_(optimizer) { optimizer_.swap_averages(); }
    ~Averages() { optimizer_.swap_averages(); }
    Averages(const Averages&) = delete;
    Averages& operator=(const Averages&) = delete;

   private:
    Optimizer& optimizer_;
  };
  // Before the first update after weights came from elsewhere. saved: weights and state were loaded
  // as they are saved; else averages begin with the weights.
  void start_averages(bool saved);

  // Updates so far. Waits for a GPU.
  int64_t steps() const;
  // "NAME.exp_avg", ...: shared storage. steps is restored by the caller's own count.
  TensorMap state() const;
  // Throws DataError naming what is missing or has another shape.
  void load_state(const TensorMap& state, int64_t steps);

 private:
  struct Entry;
  bool has_shards() const;
  void update_averages(double share);
  void update_averages(const at::Tensor& share);  // float32 scalar on the device
  void swap_averages();
  double decay_of(const Entry& entry) const;
  // The rows of a coalesced sparse gradient; keep: bool scalar.
  void step_rows(Entry& entry, const at::Tensor& gradient, const at::Tensor& learning_rate,
                 const at::Tensor& scale, const at::Tensor& keep);

  config::OptimizerArgs args_;
  distributed::ProcessGroup& group_;
  std::vector<Entry> entries_;
  int64_t steps_ = 0;
  at::Tensor
      device_steps_;  // float32 scalar on the parameters' GPU, which then counts instead of steps_
};

}  // namespace seqfuse::training
