// AUC, NE, ACC and GAUC of predicted labels. docs/metrics.md defines them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/metrics.h"
#include "metrics/ranking_metric.h"

namespace seqfuse::metrics {

// Area under the ROC curve, exact: the share of correctly ordered (positive, negative) pairs, ties
// counting half. NaN if there is only one class. labels are 0 or 1.
double auc(std::span<const float> scores, std::span<const uint8_t> labels);

struct GroupedAuc {
  double value = 0;     // AUC per group, weighted by group size; NaN if no group has one
  int64_t skipped = 0;  // groups with only one class
  int64_t groups = 0;   // all groups
};
GroupedAuc grouped_auc(std::span<const float> scores, std::span<const uint8_t> labels,
                       std::span<const int64_t> groups);

// Collects scores and labels of P predictions until the metrics are computed.
class RankingMetrics {
 public:
  // width: the number of classes, or of tasks. task_names [width]: unused for classes.
  RankingMetrics(std::vector<RankingMetric> metrics, int64_t width, bool classes,
                 std::vector<std::string> task_names);

  int64_t width() const { return width_; }
  bool is_classes() const { return classes_; }

  // scores [width]: tasks: logits; classes: logarithms of the probabilities. labels [width]: 0 or
  // 1; classes: one 1. Throws Error if a score is not finite.
  void add(int64_t user, std::span<const float> scores, std::span<const uint8_t> labels);

  // Metric by metric: one value per task ("AUC is_click"), or one in all with a single task or
  // classes (AUC, GAUC: one against the rest, averaged over the classes that occur). NaN if nothing
  // was added.
  Metrics compute() const;

 private:
  struct Column {
    std::vector<float> scores;
    std::vector<uint8_t> labels;
  };
  double compute_one(RankingMetric metric, const Column& column, const std::string& label) const;
  double compute_classes(RankingMetric metric) const;

  std::vector<RankingMetric> metrics_;
  int64_t width_;
  bool classes_;
  std::vector<std::string> task_names_;
  std::vector<Column> columns_;
  std::vector<int64_t> users_;
};

}  // namespace seqfuse::metrics
