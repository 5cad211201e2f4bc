// The datasets that runs were trained on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/dataset_statistics.h"
#include "report/run_log.h"

namespace seqfuse::report {

struct RunDataset {
  std::string path;
  std::vector<std::string> runs;                // names of the runs trained on it
  std::optional<DatasetStatistics> statistics;  // none: see problem
  std::string problem;                          // why there are none, and what to do
};

// One per dataset path of the runs, in order. data: the new directory of a moved dataset, used for
// all runs trained on its content, or "". Throws UsageError if data is not a dataset or matches no
// run.
std::vector<RunDataset> run_datasets(const std::vector<RunLog>& runs, const std::string& data);

}  // namespace seqfuse::report
