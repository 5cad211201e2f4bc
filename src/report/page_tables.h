// The tables of the report, as HTML.
#pragma once

#include <string>
#include <vector>

#include "report/dataset_statistics.h"
#include "report/run_log.h"

namespace seqfuse::report {

// One row per run: task, progress, duration.
std::string runs_table(const std::vector<RunLog>& runs);

// Last and best evaluation of each run, and the baselines; the best value of each metric is bold.
std::string metrics_table(const std::vector<RunLog>& runs);

// Parameters that differ between the runs; for one run, its whole configuration, folded.
std::string configuration(const std::vector<RunLog>& runs);

std::string statistics_table(const DatasetStatistics& statistics);

}  // namespace seqfuse::report
