// What events of a data set are typically like: defaults for events of which only the item is
// known.
#pragma once

#include <cstdint>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

// All look at 1000 users at most, spread evenly over the rows: the same ones every time.

// The median time between consecutive events of a user; 0 without times or without two events.
int64_t typical_gap(const Dataset& dataset);

// The label that most events have, the lowest of several; 0 without actions.
int64_t most_common_action(const Dataset& dataset);

struct TypicalEvents {
  int64_t gap = 0, action = 0;

  static TypicalEvents of(const Dataset& dataset);
};

}  // namespace seqfuse::data
