// The operative configuration of a run as parameters and literals, and differences between runs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/choices.h"

namespace seqfuse::report {

// {"TrainerArgs.seed", "1"}: the literal as in the file; it may span lines.
using Parameters = std::vector<std::pair<std::string, std::string>>;

// text: as config::operative_config prints it.
Parameters split_parameters(std::string_view text);

// A parameter whose value differs between runs; one value per run, "" if a run has none.
struct Difference {
  std::string name;
  std::vector<std::string> values;
};

// In the order in which parameters first appear.
std::vector<Difference> differences(const std::vector<Parameters>& runs);

// The names of a run's metrics (AUC, HR@10, ...) in order, with the early-stopping metric first.
// text: the operative configuration. Throws UsageError if it is not a gin file.
std::vector<std::string> reported_metrics(const std::string& file, std::string_view text,
                                          config::Task task);

}  // namespace seqfuse::report
