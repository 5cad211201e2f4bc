// The report as one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "report/run_datasets.h"
#include "report/run_log.h"

namespace seqfuse::report {

// version: of seqfuse. runs: at least one.
std::string html_page(const std::vector<RunLog>& runs, const std::vector<RunDataset>& datasets,
                      const std::string& version);

}  // namespace seqfuse::report
