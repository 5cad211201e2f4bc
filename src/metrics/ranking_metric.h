// The names of ranking metrics. docs/metrics.md defines them.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace seqfuse::metrics {

enum class RankingMetric { auc, ne, acc, gauc };

// In the order of the enumerators, as config/choices.h expects.
inline std::span<const std::string_view> choice_names(RankingMetric) {
  static constexpr std::array<std::string_view, 4> names = {"AUC", "NE", "ACC", "GAUC"};
  return names;
}

}  // namespace seqfuse::metrics
