// The operative configuration of a run as parameters and literals, and how those of runs differ.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::report {

// {"TrainerArgs.seed", "1"}: the literal as it stands in the file, which may span lines.
using Parameters = std::vector<std::pair<std::string, std::string>>;

// text: as config::operative_config prints it.
Parameters split_parameters(std::string_view text);

// A parameter whose value is not the same in all runs; one value a run, "" where a run has none.
struct Difference {
  std::string name;
  std::vector<std::string> values;
};

// In the order in which parameters first appear.
std::vector<Difference> differences(const std::vector<Parameters>& runs);

// What a run reports: the names of its metrics in order (AUC, HR@10, ...), the watched one first.
// text: the operative configuration. Throws UsageError if it is not a gin file.
std::vector<std::string> reported_metrics(const std::string& file, std::string_view text,
                                          bool ranking);

}  // namespace seqfuse::report
