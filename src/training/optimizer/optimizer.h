// AdamW, Adam, SGD and row-wise Adagrad over a model's parameters; embedding tables may have their
// own.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/args.h"
#include "embeddings/table.h"
#include "embeddings/update/update_step.h"
#include "training/checkpoint/tensor_files.h"

namespace seqfuse::training {

// What an update is: embeddings/update/update_step.h. Dense weights have their state here; tables
// have their own, and update themselves.
class Optimizer {
 public:
  // tables: those of the module; every other parameter is dense. group: the processes over which
  // tables are sharded. Throws UsageError on an unknown optimiser.
  Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args,
            const embeddings::Tables& tables = {},
            distributed::ProcessGroup& group = distributed::ProcessGroup::single());

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
  // Of dense weights: "NAME.exp_avg", ...: shared storage. steps is restored by the caller's own
  // count.
  TensorMap state() const;
  // Throws DataError naming what is missing or has another shape.
  void load_state(const TensorMap& state, int64_t steps);

 private:
  struct Parameter {
    std::string name;
    std::optional<embeddings::ParameterState> dense;
    embeddings::EmbeddingTable* table = nullptr;  // else

    bool is_shard() const { return table && table->is_sharded(); }
    // [n, ...]: of a table, only of the rows that have one; undefined: it has none.
    at::Tensor gradient() const;
  };
  bool has_shards() const;
  void update(embeddings::UpdateStep step);
  void swap_averages();

  const config::OptimizerArgs args_;
  distributed::ProcessGroup& group_;
  std::vector<Parameter> parameters_;  // in the order of the module; sums depend on it
  int64_t steps_ = 0;
  at::Tensor
      device_steps_;  // float32 scalar on the parameters' GPU, which then counts instead of steps_
};

}  // namespace seqfuse::training
