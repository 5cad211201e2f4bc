// The operative configuration: a gin file with the value in force of every parameter.
#pragma once

#include <string>

#include "config/roots.h"

namespace seqfuse::config {

// Prints RankingArgs if ranking is true, and DatasetArgs unless there is a benchmark dataset.
// Scopes are named after their contents. Loads back to an equal Config.
std::string operative_config(const Config& config, bool bound);
std::string operative_config(const EvaluateConfig& config, bool bound);

}  // namespace seqfuse::config
