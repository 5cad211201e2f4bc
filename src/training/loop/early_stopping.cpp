#include "training/loop/early_stopping.h"

#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/names.h"

namespace seqfuse::training {
namespace {

double watched_value(const metrics::Metrics& metrics, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [metric, value] : metrics) {
    if (metric == name) return value;
    names.push_back(metric);
  }
  throw_error<UsageError>("TrainerArgs.early_stopping_metric is '{}'{}: the metrics are {}", name,
                          did_you_mean(name, names), fmt::join(names, ", "));
}

}  // namespace

void compare_with_best(const config::TrainerArgs& args, const metrics::Metrics& metrics,
                       TrainingState& state) {
  const std::string name =
      args.early_stopping_metric.empty() ? metrics[0].first : args.early_stopping_metric;
  const double value = watched_value(metrics, name);
  if (std::isnan(value)) {
    // Counts neither as the best evaluation nor as a lack of improvement.
    if (args.early_stopping_patience > 0) {
      log::warning("train", "{} is undefined: this evaluation does not count for early stopping",
                   name);
    }
  } else if (metrics::is_better(name, value, metrics::value_of(state.best_metrics, name))) {
    state.watched = name;
    state.best_step = state.step;
    state.best_metrics = metrics;
    state.evaluations_since_best = 0;
  } else if (state.best_step != state.step) {
    ++state.evaluations_since_best;
  }
}

void forget_best_of_other_metric(const config::TrainerArgs& args, TrainingState& state) {
  const std::string& metric = args.early_stopping_metric;
  if (state.watched.empty() || metric.empty() || metric == state.watched) return;
  state.best_step = -1;
  state.best_metrics.clear();
  state.evaluations_since_best = 0;
}

bool early_stop_due(const config::TrainerArgs& args, const TrainingState& state) {
  const int64_t patience = args.early_stopping_patience;
  return patience > 0 && state.evaluations_since_best >= patience;
}

}  // namespace seqfuse::training
