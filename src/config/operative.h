// The operative configuration: a gin file with the value in force of every parameter.
#pragma once

#include <string>

#include "config/args.h"

namespace seqfuse::config {

// RankingArgs is printed if ranking is true; DatasetArgs unless there is a benchmark dataset.
// Scopes are named after what they hold. Loads back to an equal Config.
std::string operative_config(const Config& config, bool ranking);

}  // namespace seqfuse::config
