// Typical events of a dataset, as defaults for request events whose time or action is not given.
#pragma once

#include <cstdint>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

// All functions sample the same 1000 users at most, spread evenly over the rows.

// The median time between consecutive events of a user; 0 without times or without two events.
int64_t typical_gap(const Dataset& dataset);

// The most frequent label, the lowest in a tie; 0 without actions.
int64_t most_common_action(const Dataset& dataset);

struct TypicalEvents {
  int64_t gap = 0, action = 0;

  static TypicalEvents of(const Dataset& dataset);
};

}  // namespace seqfuse::data
