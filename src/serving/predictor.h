// A trained model for inference: query vectors, best items, scores of candidates, metrics.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch/batch.h"
#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"
#include "training/evaluation/catalogue.h"
#include "training/evaluation/evaluation.h"

namespace seqfuse::serving {

using training::ItemLists;
using training::ScoredItem;
using training::TopItems;

// Immutable: all methods may be called from several threads at once. Methods of the other task
// throw UsageError. A window's history is all its events except candidates (data::Batch); a
// retrieval run reads only the time of the first candidate, as the request time.
class Predictor {
 public:
  // Takes over the model: moves it to the device and to evaluation mode; do not use it elsewhere.
  // For retrieval, computes the rows of all items once. Throws Error if tables are sharded.
  Predictor(std::shared_ptr<models::hstu::TaskModel> model, at::Device device);

  const models::hstu::ModelSpec& spec() const { return model_->spec(); }
  bool is_retrieval() const { return retrieval_ != nullptr; }
  at::Device device() const { return device_; }

  // Retrieval: [B, D] on the device, in the dtype of the item rows, L2-normalised. 0 for a window
  // without history.
  at::Tensor queries(const data::Batch& windows) const;
  // The rows of all items, [num_items + 1, D], L2-normalised, and scans of them.
  const training::Catalogue& catalogue() const;
  // The k best items for each window, as Catalogue::top(). Throws DataError if vectors of users are
  // not finite.
  TopItems top_items(const data::Batch& windows, int64_t k, const ItemLists& excluded,
                     std::span<const int64_t> allowed = {}) const;

  // Ranking: float64 [C, S] on the CPU, one row per candidate of all windows, in order. Higher is
  // better; candidates are ordered by the first score. Classes: the mean label. Tasks: a
  // probability each. Throws DataError if scores are not finite.
  at::Tensor candidate_scores(const data::Batch& windows) const;
  // Names of the S scores: "expected class"; "probability"; or the names of the actions.
  std::vector<std::string> score_names(const std::vector<std::string>& action_names) const;

  // Like training::evaluate(), in one process.
  training::Metrics evaluate(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                             const training::EvaluationOptions& options) const;

 private:
  models::hstu::RetrievalModel& retrieval() const;
  models::hstu::RankingModel& ranking() const;
  models::hstu::RankingModel::Output forward(const data::Batch& windows) const;

  // Models' methods are not const, since fetching rows of sharded tables changes state. In
  // evaluation mode with replicated tables they change nothing.
  std::shared_ptr<models::hstu::TaskModel> model_;
  models::hstu::RetrievalModel* retrieval_;  // model_, or null
  models::hstu::RankingModel* ranking_;      // the same
  at::Device device_;
  std::optional<training::Catalogue> catalogue_;  // retrieval only
};

}  // namespace seqfuse::serving
