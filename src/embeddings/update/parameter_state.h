// A parameter with its optimiser state: a dense weight, or the rows of an embedding table.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "config/choices.h"

namespace seqfuse::embeddings {

using config::OptimizerKind;

using StateTensors = std::map<std::string, at::Tensor>;

// The updates are described in update_step.h.
struct ParameterState {
  // weight: contiguous; rows are along the last dimension, and a one-dimensional weight is one row.
  // Allocates the state here, so that steps allocate almost nothing.
  ParameterState(at::Tensor weight, OptimizerKind kind, double weight_decay, bool averaged);

  bool is_adam() const { return kind == OptimizerKind::adamw || kind == OptimizerKind::adam; }
  int64_t row_length() const { return weight.dim() == 0 ? 1 : weight.size(-1); }

  // "exp_avg", "exp_avg_sq", "sum_sq", "unaveraged"; they share storage with the state.
  StateTensors tensors() const;

  // Swaps the storage of the weight and its average, without allocating. Does nothing without an
  // average.
  void swap_average();
  // Sets the average to the weight.
  void restart_average();

  at::Tensor weight;
  OptimizerKind kind;
  double weight_decay;
  at::Tensor exp_avg, exp_avg_sq;  // adamw, adam: the weight's shape
  at::Tensor sum_sq;               // row_wise_adagrad: [rows]
  at::Tensor average;              // of the weight over the updates, if requested: its shape
};

}  // namespace seqfuse::embeddings
