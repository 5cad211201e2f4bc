// An HSTU model with the loss of its task; the trainer's interface.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "data/batch/batch.h"
#include "embeddings/table.h"
#include "models/common/model.h"
#include "models/common/step_seed.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/step_inputs.h"
#include "models/hstu/windows.h"

namespace seqfuse::models::hstu {

class TaskModel : public Model {
 public:
  virtual const ModelSpec& spec() const = 0;

  // Uploads a training batch for loss() to the model's device.
  virtual Windows upload(const data::Batch& batch, const StepInputs& inputs = {}) = 0;

  struct Loss {
    at::Tensor sum;         // scalar: over positions and tasks
    int64_t positions = 0;  // in the batch; 0: nothing to learn from, sum has no gradient
  };
  // num_positions: int64 [1] on the model's device; only that many leading positions are summed.
  virtual Loss loss(const Windows& windows, const StepSeed& seed,
                    const at::Tensor& num_positions = {});
  Loss loss(const data::Batch& batch, const StepSeed& seed);

 protected:
  // Per position [P], or per position and task [P, tasks].
  virtual at::Tensor training_losses(const Windows& windows, const StepSeed& seed) = 0;
};

// The model of spec.task. Weights are initialised from seed on the CPU; move the module with to().
// Without a seed they must be loaded (training/checkpoint/weights.h). dtype: float32 or float64.
std::shared_ptr<TaskModel> make_task_model(const ModelSpec& spec, std::optional<uint64_t> seed,
                                           torch::ScalarType dtype = torch::kFloat,
                                           const embeddings::Placement& placement = {});

}  // namespace seqfuse::models::hstu
