// The target of a retrieval sample, and the user's items before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/batch/split.h"
#include "data/dataset/dataset.h"

namespace seqfuse::training {

inline int64_t target_item(const data::Dataset& dataset, const data::Sample& sample) {
  return dataset.user(sample.user).items[sample.end - 1];
}

// Distinct items of all the user's events before the target, including those before the window,
// ascending.
inline std::vector<int64_t> seen_items(const data::Dataset& dataset, const data::Sample& sample) {
  const data::Sample whole = {.user = sample.user, .begin = 0, .end = sample.end};
  dataset.check_unchanged(&whole, 1);
  const auto earlier = dataset.user(sample.user).items.first(sample.end - 1);
  std::vector<int64_t> items(earlier.begin(), earlier.end());
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

}  // namespace seqfuse::training
