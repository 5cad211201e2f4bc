#include "metrics/ranking_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace seqfuse::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Scored = std::pair<float, uint8_t>;

double auc_of(std::span<Scored> scored) {
  std::sort(scored.begin(), scored.end());
  uint64_t negatives = 0, positives = 0, twice_ordered = 0;
  for (size_t i = 0; i < scored.size();) {
    uint64_t equal_negatives = 0, equal_positives = 0;
    const float score = scored[i].first;
    for (; i < scored.size() && scored[i].first == score; ++i) {
      ++(scored[i].second ? equal_positives : equal_negatives);
    }
    twice_ordered += equal_positives * (2 * negatives + equal_negatives);
    negatives += equal_negatives;
    positives += equal_positives;
  }
  if (negatives == 0 || positives == 0) return kNaN;
  return static_cast<double>(twice_ordered) /
         (2 * static_cast<double>(negatives) * static_cast<double>(positives));
}

double mean(const std::vector<double>& values) {
  return values.empty() ? kNaN
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double plogp(double p) {
  return p > 0 ? p * std::log(p) : 0;
}

// log(1 + e^x) without overflow.
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double normalised_entropy(std::span<const float> logits, std::span<const uint8_t> labels) {
  double loss = 0, positives = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    loss += softplus(labels[i] ? -logits[i] : logits[i]);
    positives += labels[i];
  }
  const auto n = static_cast<double>(logits.size());
  const double rate = positives / n, entropy = -plogp(rate) - plogp(1 - rate);
  return entropy > 0 ? loss / n / entropy : kNaN;
}

double accuracy(std::span<const float> logits, std::span<const uint8_t> labels) {
  int64_t right = 0;
  for (size_t i = 0; i < logits.size(); ++i) right += (logits[i] > 0) == (labels[i] != 0);
  return static_cast<double>(right) / static_cast<double>(logits.size());
}

void report_skipped(const std::string& label, const GroupedAuc& grouped) {
  log::info("evaluate", "{}: {} of {} users have labels of one kind only and are left out", label,
            grouped.skipped, grouped.groups);
}

}  // namespace

double auc(std::span<const float> scores, std::span<const uint8_t> labels) {
  std::vector<Scored> scored(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) scored[i] = {scores[i], labels[i]};
  return auc_of(scored);
}

GroupedAuc grouped_auc(std::span<const float> scores, std::span<const uint8_t> labels,
                       std::span<const int64_t> groups) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return groups[a] < groups[b]; });
  GroupedAuc result;
  double sum = 0, weight = 0;
  std::vector<Scored> scored;
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    scored.clear();
    for (end = begin; end < order.size() && groups[order[end]] == groups[order[begin]]; ++end) {
      scored.emplace_back(scores[order[end]], labels[order[end]]);
    }
    const double value = auc_of(scored);
    ++result.groups;
    if (std::isnan(value)) {
      ++result.skipped;
      continue;
    }
    sum += value * static_cast<double>(end - begin);
    weight += static_cast<double>(end - begin);
  }
  result.value = weight > 0 ? sum / weight : kNaN;
  return result;
}

RankingMetrics::RankingMetrics(std::vector<RankingMetric> metrics, int64_t width, bool classes,
                               std::vector<std::string> task_names)
    : metrics_(std::move(metrics)),
      width_(width),
      classes_(classes),
      task_names_(std::move(task_names)),
      columns_(static_cast<size_t>(width)) {
  SEQFUSE_CHECK(classes || std::ssize(task_names_) == width, "{} names of {} tasks",
                task_names_.size(), width);
}

void RankingMetrics::add(int64_t user, std::span<const float> scores,
                         std::span<const uint8_t> labels) {
  for (int64_t c = 0; c < width_; ++c) {
    SEQFUSE_CHECK(
        std::isfinite(scores[c]),
        "the model's logits are not finite: its weights have diverged; train with a lower "
        "learning rate, or evaluate an earlier checkpoint");
    columns_[c].scores.push_back(scores[c]);
    columns_[c].labels.push_back(labels[c]);
  }
  users_.push_back(user);
}

double RankingMetrics::compute_one(RankingMetric metric, const Column& column,
                                   const std::string& label) const {
  switch (metric) {
    case RankingMetric::auc:
      return auc(column.scores, column.labels);
    case RankingMetric::ne:
      return normalised_entropy(column.scores, column.labels);
    case RankingMetric::acc:
      return accuracy(column.scores, column.labels);
    case RankingMetric::gauc:
      break;
  }
  const GroupedAuc grouped = grouped_auc(column.scores, column.labels, users_);
  report_skipped(label, grouped);
  return grouped.value;
}

double RankingMetrics::compute_classes(RankingMetric metric) const {
  const size_t n = users_.size();
  if (metric == RankingMetric::auc || metric == RankingMetric::gauc) {
    std::vector<double> values;
    for (int64_t c = 0; c < width_; ++c) {
      const Column& column = columns_[c];
      const double value = metric == RankingMetric::auc
                               ? auc(column.scores, column.labels)
                               : grouped_auc(column.scores, column.labels, users_).value;
      if (!std::isnan(value)) values.push_back(value);
    }
    return mean(values);
  }
  double loss = 0, right = 0, entropy = 0;
  for (const Column& column : columns_) {
    double positives = 0;
    for (size_t i = 0; i < n; ++i) {
      if (!column.labels[i]) continue;
      ++positives;
      loss -= column.scores[i];
      right += std::all_of(columns_.begin(), columns_.end(), [&](const Column& other) {
        return other.scores[i] <= column.scores[i];
      });
    }
    entropy -= plogp(positives / static_cast<double>(n));
  }
  if (metric == RankingMetric::acc) return right / static_cast<double>(n);
  return entropy > 0 ? loss / static_cast<double>(n) / entropy : kNaN;
}

Metrics RankingMetrics::compute() const {
  Metrics result;
  for (const RankingMetric metric : metrics_) {
    const std::string name(choice_names(metric)[static_cast<size_t>(metric)]);
    if (classes_) {
      result.emplace_back(name, users_.empty() ? kNaN : compute_classes(metric));
      continue;
    }
    for (int64_t task = 0; task < width_; ++task) {
      const std::string label = width_ == 1 ? name : name + " " + task_names_[task];
      result.emplace_back(label,
                          users_.empty() ? kNaN : compute_one(metric, columns_[task], label));
    }
  }
  return result;
}

}  // namespace seqfuse::metrics
