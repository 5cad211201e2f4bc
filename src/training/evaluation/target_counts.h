// Counts retrieval targets that the user has interacted with before.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/batch/split.h"
#include "data/dataset/dataset.h"

namespace seqfuse::training {

struct TargetCounts {
  int64_t targets = 0;
  int64_t seen = 0;  // of these, targets among the user's earlier events

  // A sentence for the log. filter_seen: RetrievalArgs::filter_seen.
  std::string text(bool filter_seen) const;
};

// For retrieval windows.
TargetCounts count_targets(const data::Dataset& dataset, std::span<const data::Sample> samples);

}  // namespace seqfuse::training
