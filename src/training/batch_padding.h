// Batches of few different sizes, for CUDA graphs of training steps.
#pragma once

#include "data/batch.h"
#include "models/hstu/model.h"

namespace seqfuse::training {

// The batch with windows of the unknown item at its end, so that the events of history and the
// candidates of all windows take 16 values between a power of two and the next. The first of these
// windows is as long as any may be: the longest window of a batch is then always as long. A batch
// whose windows are all alike stays as it is. The losses of these windows come last
// (models::num_predicted of the batch tells how many come before), and must not count.
data::Batch pad_batch(const data::Batch& batch, const models::ModelSpec& spec);

}  // namespace seqfuse::training
