// A ranking or a retrieval model as the training loop sees it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch/batch.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "models/hstu/model.h"
#include "models/hstu/windows.h"
#include "training/evaluation/evaluation.h"

namespace seqfuse::training {

class TaskModel {
 public:
  // Builds the model of spec.task with weights from seed.
  static std::unique_ptr<TaskModel> make(const models::ModelSpec& spec, uint64_t seed,
                                         const embeddings::Placement& placement = {});
  virtual ~TaskModel() = default;

  virtual models::Model& module() = 0;
  virtual const models::ModelSpec& spec() = 0;
  at::Device device() { return module().parameters()[0].device(); }

  struct Loss {
    torch::Tensor sum;      // scalar: over positions and tasks
    int64_t positions = 0;  // of the batch; 0: nothing to learn from, sum is without gradient
  };
  Loss loss(const data::Batch& batch, const models::StepSeed& seed) {
    return loss(module().upload(batch), seed);
  }
  // num_positions: int64 [1] on the model's device, the sum is over so many first positions only.
  virtual Loss loss(const models::Windows& windows, const models::StepSeed& seed,
                    const torch::Tensor& num_positions = {}) = 0;

  // Leaves the module in training mode.
  virtual Metrics evaluate(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options) = 0;
};

}  // namespace seqfuse::training
