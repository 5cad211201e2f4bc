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
  std::string problem;                          // why not, and what to do
};

// One for each dataset path of the runs, in order. data: a directory that replaces the paths of the
// runs that were trained on its content (the dataset was moved); "" for none. Throws UsageError if
// data is no dataset or not that of any run.
std::vector<RunDataset> run_datasets(const std::vector<RunLog>& runs, const std::string& data);

}  // namespace seqfuse::report
