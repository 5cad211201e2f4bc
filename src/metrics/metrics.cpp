#include "metrics/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "metrics/ranking_metric.h"

namespace seqfuse::metrics {
namespace {

// Ranking metrics are reported by metric and action: "NE is_click".
bool lower_is_better(std::string_view name) {
  constexpr RankingMetric entropy = RankingMetric::ne;
  return name.substr(0, name.find(' ')) == choice_names(entropy)[static_cast<size_t>(entropy)];
}

}  // namespace

double value_of(const Metrics& metrics, std::string_view name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  return found == metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

bool is_better(std::string_view name, double value, double best) {
  if (std::isnan(value)) return false;
  return std::isnan(best) || (lower_is_better(name) ? value < best : value > best);
}

}  // namespace seqfuse::metrics
