// Metrics of simple baselines that a trained model should beat. docs/metrics.md defines them.
#pragma once

#include <vector>

#include "config/args.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "models/hstu/model_spec.h"
#include "report/metrics.h"

namespace seqfuse::training {

// Popularity and first-order Markov counts from the training windows.
report::NamedMetrics retrieval_baselines(const data::Dataset& dataset, const data::Split& split,
                                         const std::vector<data::Sample>& samples,
                                         const config::RetrievalArgs& args);
// Mean label per item from the training windows.
report::NamedMetrics ranking_baselines(const data::Dataset& dataset, const data::Split& split,
                                       const std::vector<data::Sample>& samples,
                                       const models::hstu::ModelSpec& spec);

// The baselines of the spec's task.
report::NamedMetrics baselines(const data::Dataset& dataset, const data::Split& split,
                               const std::vector<data::Sample>& samples,
                               const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
