// Tells the other processes of a job how long to wait for this one.
#pragma once

#include <string>

#include "config/args.h"
#include "distributed/process_group.h"

namespace seqfuse::training {

inline constexpr double kLongSeconds = 600;  // evaluations, checkpoints, the first step

// Announces what this process does next, for up to `seconds` (or TrainerArgs.rank_timeout_seconds,
// if that is more).
void allow(distributed::ProcessGroup& group, const config::TrainerArgs& args,
           const std::string& what, double seconds = kLongSeconds);

}  // namespace seqfuse::training
