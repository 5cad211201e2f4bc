// Metrics of a model over the samples of a split. docs/metrics.md defines them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/batch/batch.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "distributed/process_group.h"
#include "metrics/metrics.h"
#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"
#include "models/hstu/task_model.h"
#include "training/evaluation/catalogue.h"

namespace seqfuse::training {

using metrics::is_better;
using metrics::Metrics;

struct EvaluationOptions {
  int64_t batch_size = 128;
  int64_t max_batches = -1;  // -1: all
  bool show_progress = false;
  // Called before each batch; true cancels the evaluation, which then returns no metrics.
  std::function<bool()> stop = [] { return false; };
  // With several processes, each evaluates a range of the windows; all get the metrics of all.
  distributed::ProcessGroup* group = &distributed::ProcessGroup::single();
};

// How many leading windows all processes together evaluate.
int64_t num_evaluated(const std::vector<data::Sample>& samples, const EvaluationOptions& options);

// A retrieval model as evaluated. tables: those with rows that processes exchange.
struct RetrievalScorer {
  const config::RetrievalArgs& args;
  const Catalogue& catalogue;
  std::function<at::Tensor(const data::Batch&)> queries;  // [B, D]
  embeddings::Tables tables = {};
};

// A ranking model as evaluated.
struct RankingScorer {
  const models::hstu::ModelSpec& spec;
  std::function<models::hstu::RankingModel::Output(const data::Batch&)> forward;
  embeddings::Tables tables = {};
};

// HR@K, NDCG@K, MRR of each sample's target (its last event) over the whole catalogue; rank 1 is
// best, ties count against the model. Leaves out the items of the user's earlier events if the args
// say so.
Metrics evaluate_retrieval(const RetrievalScorer& scorer, const data::Dataset& dataset,
                           const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options);
// AUC, NE, ACC, GAUC (per-user AUC) per task.
Metrics evaluate_ranking(const RankingScorer& scorer, const data::Dataset& dataset,
                         const std::vector<data::Sample>& samples,
                         const EvaluationOptions& options);

// The same for a model that may be in training: without dropout and gradients; restores its mode.
Metrics evaluate_retrieval(models::hstu::RetrievalModel& model, const data::Dataset& dataset,
                           const std::vector<data::Sample>& samples,
                           const EvaluationOptions& options);
Metrics evaluate_ranking(models::hstu::RankingModel& model, const data::Dataset& dataset,
                         const std::vector<data::Sample>& samples,
                         const EvaluationOptions& options);

// Calls the one for the model's task; the model must be a RetrievalModel or a RankingModel.
Metrics evaluate(models::hstu::TaskModel& model, const data::Dataset& dataset,
                 const std::vector<data::Sample>& samples, const EvaluationOptions& options);

}  // namespace seqfuse::training
