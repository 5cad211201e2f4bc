// Ranking: predicts the actions on candidates.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "models/hstu/task_model.h"

namespace seqfuse::models::hstu {

class RankingModel : public TaskModel {
 public:
  struct Output {
    at::Tensor logits;   // [P, width of the head]
    at::Tensor labels;   // tasks: float [P, num_tasks] of 0 and 1; classes: int64 [P]
    at::Tensor items;    // int64 [P]
    at::Tensor windows;  // int64 [P]: index of the window in the batch
  };
  // P: the candidates of all windows; all events if the spec's max_candidates is 0 and no window of
  // the batch has candidates.
  virtual Output forward(const Windows& windows, const StepSeed& seed) = 0;
  Output forward(const data::Batch& batch, const StepSeed& seed);
  // Loss per position and task [P, num_tasks] (classes: [P, 1]).
  virtual at::Tensor losses(const Output& output) = 0;

 protected:
  at::Tensor training_losses(const Windows& windows, const StepSeed& seed) final;
};

// Like make_task_model().
std::shared_ptr<RankingModel> make_ranking_model(const ModelSpec& spec,
                                                 std::optional<uint64_t> seed,
                                                 torch::ScalarType dtype = torch::kFloat,
                                                 const embeddings::Placement& placement = {});

}  // namespace seqfuse::models::hstu
