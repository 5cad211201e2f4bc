// A sample of training or evaluation: some consecutive events of a user.
#pragma once

#include <cstdint>

namespace seqfuse::data {

// A window of one user's events: [begin, end). The last num_candidates events are candidates (their
// actions are what ranking predicts, and their labels are never visible to the model); for
// retrieval evaluation the last one is the item to be found.
struct Sample {
  int64_t user = 0;
  int64_t begin = 0, end = 0;
  int64_t num_candidates = 0;
  // A training batch shifts the window back by up to this many events, drawn anew in every
  // epoch.
  int64_t slack = 0;
};

}  // namespace seqfuse::data
