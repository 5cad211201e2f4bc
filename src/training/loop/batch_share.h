// Which windows of a batch a process of several trains on.
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

// The shares of all processes hold each window of a batch once. balanced: the same predicted work
// for each; otherwise as many windows, in their order. Empty of one process: all windows.
BatchShare batch_share(const models::hstu::ModelSpec& spec, const distributed::ProcessGroup& group,
                       bool balanced);

}  // namespace seqfuse::training
