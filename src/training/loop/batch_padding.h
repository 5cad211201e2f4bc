// Batches of few different sizes, for CUDA graphs of training steps.
#pragma once

#include "data/batch/batch.h"
#include "models/hstu/model_spec.h"
#include "models/hstu/windows.h"

namespace seqfuse::training {

// The batch with more windows at its end, of item 1, so that the events of history, and the
// candidates where windows have different numbers of them, take 16 values between a power of two
// and the next. None is longer than round_lengths() has it. A batch whose windows are all as long
// as they may be stays as it is. The losses of these windows come last (models::hstu::num_predicted of
// the batch tells how many come before), and must not count.
data::Batch pad_batch(const data::Batch& batch, const models::hstu::ModelSpec& spec);

// Of the longest window of a batch, which operators take as bounds: to as few values.
void round_lengths(models::hstu::Windows& windows, const models::hstu::ModelSpec& spec);

}  // namespace seqfuse::training
