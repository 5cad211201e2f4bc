// Joins batches of windows.
#pragma once

#include <span>

#include "data/batch/batch.h"

namespace seqfuse::data {

// Appends the windows of from, a batch of the same dataset, to to, which may be empty.
void append_windows(Batch& to, const Batch& from);

// All windows of the parts, in order.
Batch joined_windows(std::span<const Batch* const> parts);

}  // namespace seqfuse::data
