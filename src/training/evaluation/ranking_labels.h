// The labels that a ranking model predicts of an action: tasks or classes.
#pragma once

#include <cstdint>
#include <span>

#include "data/dataset/manifest.h"
#include "metrics/ranking_metrics.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

// The metrics of RankingArgs.eval_metrics; tasks have the manifest's names of action bits.
metrics::RankingMetrics ranking_metrics(const models::hstu::ModelSpec& spec,
                                        const data::Manifest& manifest);

// Labels [width] of an action: its bits, whether it reaches the threshold, or its class.
void labels_of_action(const models::hstu::ModelSpec& spec, int64_t action,
                      std::span<uint8_t> labels);

}  // namespace seqfuse::training
