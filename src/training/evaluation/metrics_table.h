// Metrics of several models as a text table.
#pragma once

#include <string>

#include "metrics/metrics.h"

namespace seqfuse::training {

// One row per model, one column per metric; marks the best of each column.
std::string format_metrics_table(const metrics::NamedMetrics& rows);

}  // namespace seqfuse::training
