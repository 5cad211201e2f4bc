// Metrics of several models as a text table.
#pragma once

#include <string>

#include "report/metrics.h"

namespace seqfuse::training {

// One row a model, one column a metric; the best of each column is marked.
std::string format_metrics_table(const report::NamedMetrics& rows);

}  // namespace seqfuse::training
