// Metrics by name, as evaluations report them; docs/metrics.md defines them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::metrics {

// In the order of reporting: {"HR@10", .30}, or {"AUC is_click", .71}. NaN if undefined.
using Metrics = std::vector<std::pair<std::string, double>>;

// Metrics of several models: {"popularity", {...}}.
using NamedMetrics = std::vector<std::pair<std::string, Metrics>>;

// NaN if there is no such metric.
double value_of(const Metrics& metrics, std::string_view name);

// Lower is better for normalised entropy, higher for every other metric. NaN is never better.
bool is_better(std::string_view name, double value, double best);

}  // namespace seqfuse::metrics
