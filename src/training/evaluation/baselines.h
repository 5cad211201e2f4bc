// Metrics of simple baselines that a trained model should beat. docs/metrics.md defines them.
#pragma once

#include <vector>

#include "config/args.h"
#include "data/batch/split.h"
#include "data/dataset/dataset.h"
#include "metrics/metrics.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// Popularity and first-order Markov counts from the training windows.
metrics::NamedMetrics retrieval_baselines(const data::Dataset& dataset, const data::Split& split,
                                          const std::vector<data::Sample>& samples,
                                          const config::RetrievalArgs& args);
// Mean label per item from the training windows.
metrics::NamedMetrics ranking_baselines(const data::Dataset& dataset, const data::Split& split,
                                        const std::vector<data::Sample>& samples,
                                        const models::hstu::ModelSpec& spec);

// The baselines of the spec's task.
metrics::NamedMetrics baselines(const data::Dataset& dataset, const data::Split& split,
                                const std::vector<data::Sample>& samples,
                                const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
