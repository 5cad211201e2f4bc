// Runs the evaluations of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "config/args.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "distributed/process_group.h"
#include "models/hstu/task_model.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/target_counts.h"

namespace seqfuse::training {

// Signature of training::evaluate.
using Evaluate = std::function<Metrics(models::hstu::TaskModel&, const data::Dataset&,
                                       const std::vector<data::Sample>&, const EvaluationOptions&)>;

class RunEvaluator {
 public:
  // Evaluates on these windows. All references must outlive it.
  RunEvaluator(models::hstu::TaskModel& model, const data::Dataset& dataset,
               const std::vector<data::Sample>& samples, Evaluate evaluate)
      : model_(model), dataset_(dataset), samples_(samples), evaluate_(std::move(evaluate)) {}

  // Returns no metrics if there is nothing to evaluate on or stop() cancelled it. stop is called
  // before each batch, except with several processes, which would have to agree on it.
  const Metrics& run(const config::TrainerArgs& args, distributed::ProcessGroup& group,
                     bool show_progress, const std::function<bool()>& stop);

  // Metrics of the last evaluation; empty if there was none.
  const Metrics& metrics() const { return metrics_; }
  // Retrieval: the counts for every evaluation, available after the first.
  const std::optional<TargetCounts>& target_counts() const { return target_counts_; }

 private:
  models::hstu::TaskModel& model_;
  const data::Dataset& dataset_;
  const std::vector<data::Sample>& samples_;
  const Evaluate evaluate_;
  Metrics metrics_;
  std::optional<TargetCounts> target_counts_;
};

}  // namespace seqfuse::training
