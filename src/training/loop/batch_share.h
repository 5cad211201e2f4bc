// Distributes a batch's windows over the processes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/batch/split.h"
#include "distributed/process_group.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::training {

using BatchShare = std::function<std::vector<int64_t>(std::span<const data::Sample>)>;

// Each window of a batch is in exactly one process's share. balanced: equal predicted work;
// otherwise equally many windows, in order. Empty with one process: all windows.
BatchShare batch_share(const models::hstu::ModelSpec& spec, const distributed::ProcessGroup& group,
                       bool balanced);

}  // namespace seqfuse::training
