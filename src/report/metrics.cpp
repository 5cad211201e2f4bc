#include "report/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace seqfuse::report {

double value_of(const Metrics& metrics, std::string_view name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  return found == metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

bool is_better(std::string_view name, double value, double best) {
  if (std::isnan(value)) return false;
  return std::isnan(best) || (name.starts_with("NE") ? value < best : value > best);
}

}  // namespace seqfuse::report
