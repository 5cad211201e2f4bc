// Tracks the best evaluation so far and decides on early stopping.
#pragma once

#include "config/args.h"
#include "metrics/metrics.h"
#include "training/loop/training_state.h"

namespace seqfuse::training {

// Compares the metrics after state.step with the best so far, by TrainerArgs.early_stopping_metric
// or else the first metric. An undefined (NaN) metric does not count. Throws UsageError if there is
// no such metric.
void compare_with_best(const config::TrainerArgs& args, const metrics::Metrics& metrics,
                       TrainingState& state);

// Resets the best evaluation of a resumed run that now watches another metric.
void forget_best_of_other_metric(const config::TrainerArgs& args, TrainingState& state);

// Whether the last TrainerArgs.early_stopping_patience evaluations brought no improvement.
bool early_stop_due(const config::TrainerArgs& args, const TrainingState& state);

}  // namespace seqfuse::training
