#include "models/hstu/task_model.h"

#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"

namespace seqfuse::models::hstu {

TaskModel::Loss TaskModel::loss(const Windows& windows, const StepSeed& seed,
                                const at::Tensor& num_positions) {
  at::Tensor losses = training_losses(windows, seed);
  const int64_t positions = losses.size(0);
  if (num_positions.defined()) {
    const at::Tensor counts = torch::arange(positions, num_positions.options());
    at::Tensor keep = counts < num_positions;
    if (losses.dim() > 1) keep = keep.unsqueeze(1);
    losses = torch::where(keep, losses, 0.0);
  }
  return {.sum = losses.sum(), .positions = positions};
}

TaskModel::Loss TaskModel::loss(const data::Batch& batch, const StepSeed& seed) {
  return loss(upload(batch), seed);
}

std::shared_ptr<TaskModel> make_task_model(const ModelSpec& spec, std::optional<uint64_t> seed,
                                           torch::ScalarType dtype,
                                           const embeddings::Placement& placement) {
  if (spec.task == Task::retrieval) return make_retrieval_model(spec, seed, dtype, placement);
  return make_ranking_model(spec, seed, dtype, placement);
}

}  // namespace seqfuse::models::hstu
