#include "training/loop/label_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "training/evaluation/ranking_labels.h"

namespace seqfuse::training {
namespace {

struct LabelCounts {
  std::vector<int64_t> positives;  // per task or class
  int64_t events = 0;
};

LabelCounts count_labels(const data::Dataset& dataset, const std::vector<data::Sample>& samples,
                         const models::hstu::ModelSpec& spec) {
  const int64_t width = spec.ranking.prediction_head_arch.back();
  LabelCounts counts{.positives = std::vector<int64_t>(width)};
  std::vector<uint8_t> labels(width);
  for (const data::Sample& sample : samples) {
    const auto actions = dataset.user(sample.user).actions;
    const int64_t first =
        sample.num_candidates > 0 ? sample.end - sample.num_candidates : sample.begin;
    for (int64_t i = first; i < sample.end; ++i) {
      labels_of_action(spec, actions[i], labels);
      for (int64_t c = 0; c < width; ++c) counts.positives[c] += labels[c];
      ++counts.events;
    }
  }
  return counts;
}

}  // namespace

std::string check_training_labels(const data::Dataset& dataset, const data::Split& split,
                                  const models::hstu::ModelSpec& spec) {
  if (spec.task != models::hstu::Task::ranking || split.train.empty()) return "";
  dataset.check_unchanged(split.train.data(), std::ssize(split.train));
  const LabelCounts counts = count_labels(dataset, split.train, spec);
  const std::vector<std::string>& names = dataset.manifest().action_names;
  const bool classes = std::ssize(counts.positives) != spec.ranking.num_tasks;
  const auto name_of = [&](size_t c) {
    return c < names.size() ? names[c] : fmt::format("task {}", c);
  };
  std::vector<std::string> constant;
  std::string only;
  for (size_t c = 0; c < counts.positives.size(); ++c) {
    const int64_t positives = counts.positives[c];
    if (positives > 0 && positives < counts.events) continue;
    if (positives > 0) only = name_of(c);
    constant.push_back(fmt::format("{} have {}", positives > 0 ? "all" : "none", name_of(c)));
  }
  if (constant.empty() || (classes && constant.size() < counts.positives.size())) return "";
  if (spec.ranking.label_threshold) {
    throw_error<DataError>(
        "RankingArgs.label_threshold is {}, and {} of the {} training labels reach it: there is "
        "nothing to learn\n  labels are 0 to {}: {}",
        *spec.ranking.label_threshold, counts.positives[0] > 0 ? "all" : "none", counts.events,
        spec.num_actions - 1, fmt::join(names, ", "));
  }
  if (classes) {
    return fmt::format("all {} training labels are {}: there is nothing to learn", counts.events,
                       only);
  }
  return fmt::format("of {} training labels {}: such tasks cannot be learned", counts.events,
                     fmt::join(constant, ", "));
}

}  // namespace seqfuse::training
