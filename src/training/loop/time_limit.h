// How long the other processes of a job may wait for this one.
#pragma once

#include <string>

#include "config/args.h"
#include "distributed/process_group.h"

namespace seqfuse::training {

inline constexpr double kLongSeconds = 600;  // evaluations, checkpoints, the first step

// Says what this process does from now on, for up to so many seconds (or
// TrainerArgs.rank_timeout_seconds, if that is more).
void allow(distributed::ProcessGroup& group, const config::TrainerArgs& args,
           const std::string& what, double seconds = kLongSeconds);

}  // namespace seqfuse::training
