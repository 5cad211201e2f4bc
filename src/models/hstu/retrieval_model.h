// Retrieval: predicts the next item among all items.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "models/hstu/task_model.h"

namespace seqfuse::models::hstu {

class RetrievalModel : public TaskModel {
 public:
  // Loss per predicted position [P] over all windows of the batch: the state after event i predicts
  // event i + 1. negatives: int32 [P, K] item ids; undefined: sampled as the spec says.
  virtual at::Tensor losses(const Windows& windows, const StepSeed& seed,
                            const at::Tensor& negatives) = 0;
  at::Tensor losses(const data::Batch& batch, const StepSeed& seed,
                    const at::Tensor& negatives = {});
  // [B, D], L2-normalised: the state after each window's history (its events before the last
  // num_candidates). The request time is that of the first candidate, if there is one.
  virtual at::Tensor query(const data::Batch& batch) = 0;
  // [num_items + 1, D], L2-normalised; row 0 is the unknown item. With several processes, all must
  // make the same number of calls.
  virtual at::Tensor item_rows() = 0;

 protected:
  at::Tensor training_losses(const Windows& windows, const StepSeed& seed) final;
};

// Like make_task_model().
std::shared_ptr<RetrievalModel> make_retrieval_model(const ModelSpec& spec,
                                                     std::optional<uint64_t> seed,
                                                     torch::ScalarType dtype = torch::kFloat,
                                                     const embeddings::Placement& placement = {});

}  // namespace seqfuse::models::hstu
