// Pads batches to a few sizes, for CUDA graphs of training steps.
#pragma once

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/windows.h"

namespace seqfuse::training {

// Appends windows of item 1, so that the number of events of history, and of candidates if windows
// differ in theirs, takes 16 values per power of two. No added window is longer than
// round_lengths() allows. A batch whose windows all have the maximum length is unchanged. The added
// windows' losses come last (models::hstu::num_predicted of the unpadded batch tells how many come
// before) and must not count.
data::Batch pad_batch(const data::Batch& batch, const models::hstu::ModelSpec& spec);

// Rounds the length of a batch's longest window, which operators take as a bound, to as few values.
void round_lengths(models::hstu::Windows& windows, const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
