#include "training/evaluation/ranking_labels.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace seqfuse::training {

metrics::RankingMetrics ranking_metrics(const models::hstu::ModelSpec& spec,
                                        const data::Manifest& manifest) {
  const int64_t width = spec.ranking.prediction_head_arch.back();
  std::vector<std::string> names;
  for (int64_t task = 0; task < width; ++task) {
    const bool named = task < std::ssize(manifest.action_names);
    names.push_back(named ? manifest.action_names[task] : fmt::format("task {}", task));
  }
  return {spec.ranking.eval_metrics, width, width != spec.ranking.num_tasks, std::move(names)};
}

void labels_of_action(const models::hstu::ModelSpec& spec, int64_t action,
                      std::span<uint8_t> labels) {
  const bool classes = std::ssize(labels) != spec.ranking.num_tasks;
  for (int64_t c = 0; c < std::ssize(labels); ++c) {
    if (classes) {
      labels[c] = action == c;
    } else if (spec.ranking.label_threshold) {
      labels[c] = action >= *spec.ranking.label_threshold;
    } else {
      labels[c] = (action >> c) & 1;
    }
  }
}

}  // namespace seqfuse::training
