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

namespace seqfuse::training {

// Updates as in embeddings/update/update_step.h. Keeps the state of dense weights; tables keep
// their own and update themselves.
class Optimizer {
 public:
  // tables: those of the module; every other parameter is dense. group: the processes that share
  // the tables.
  Optimizer(const torch::nn::Module& module, const config::OptimizerArgs& args,
            const embeddings::Tables& tables = {},
            distributed::ProcessGroup& group = distributed::ProcessGroup::single());

  void zero_gradients();
  // The 2-norm of all gradients, including those of sharded tables in all processes, times scale.
  // With sharded tables, call from every process.
  double gradient_norm(double scale) const;
  // Updates with gradients times scale. Parameters without a gradient do not change. CPU only.
  void step(double learning_rate, double scale);

  // The same for parameters on a GPU, without synchronising (except to read the number of rows of a
  // sparse gradient). All arguments are float32 scalars on the device; if skip is 1, nothing
  // changes, including the number of steps.
  at::Tensor gradient_norm_on_device() const;
  void step_on_device(const at::Tensor& learning_rate, const at::Tensor& scale,
                      const at::Tensor& skip);

  // While it exists, the module's weights are their averages over the updates (average_decay d:
  // after update t the average moves 1 - min(d, (t - 1) / (t + 8)) of the way to the weights, so
  // that it forgets the initial weights). Does nothing without average_decay. Averages are what is
  // evaluated and saved; state() then contains the weights themselves, "NAME.unaveraged".
  class Averages {
   public:
    explicit Averages(Optimizer& optimizer) : optimizer_(optimizer) { optimizer_.swap_averages(); }
    ~Averages() { optimizer_.swap_averages(); }
    Averages(const Averages&) = delete;
    Averages& operator=(const Averages&) = delete;

   private:
    Optimizer& optimizer_;
  };
  // Call before the first update after loading weights. saved: weights and state were loaded as
  // they are saved; otherwise averages start from the weights.
  void start_averages(bool saved);

  // Updates so far. Synchronises a GPU.
  int64_t steps() const;
  // State of dense weights, "NAME.exp_avg", ...; shares storage. The caller saves and restores the
  // number of steps.
  embeddings::StateTensors state() const;
  // Throws DataError naming a missing tensor or one of another shape.
  void load_state(const embeddings::StateTensors& state, int64_t steps);

 private:
  struct Parameter {
    std::string name;
    std::optional<embeddings::ParameterState> dense;
    embeddings::EmbeddingTable* table = nullptr;  // else weight is set

    bool is_shard() const { return table && table->is_sharded(); }
    // [n, ...]; for a table only the n rows that have a gradient; undefined: no gradient.
    at::Tensor gradient() const;
  };
  bool has_shards() const;
  void update(embeddings::UpdateStep step);
  void swap_averages();

  const config::OptimizerArgs args_;
  distributed::ProcessGroup& group_;
  std::vector<Parameter> parameters_;  // in the module's order, which determines the sums
  int64_t steps_ = 0;
  at::Tensor device_steps_;  // float32 scalar on the parameters' GPU; replaces steps_ there
};

}  // namespace seqfuse::training
