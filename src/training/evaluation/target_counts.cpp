#include "training/evaluation/target_counts.h"

#include <fmt/format.h>

#include <algorithm>

#include "training/evaluation/seen_items.h"

namespace seqfuse::training {

TargetCounts count_targets(const data::Dataset& dataset, std::span<const data::Sample> samples) {
  TargetCounts counts{.targets = std::ssize(samples)};
  for (const data::Sample& sample : samples) {
    const auto seen = seen_items(dataset, sample);
    counts.seen += std::binary_search(seen.begin(), seen.end(), target_item(dataset, sample));
  }
  return counts;
}

std::string TargetCounts::text(bool filter_seen) const {
  std::string text =
      fmt::format("{} of {} targets ({:.1f} %) are items that the user has had before", seen,
                  targets, targets > 0 ? 100. * static_cast<double>(seen) / targets : 0);
  if (filter_seen && seen > 0) {
    text += "; filter_seen ranks these too, but `recommend` shows them only with --include-seen";
  }
  return text;
}

}  // namespace seqfuse::training
