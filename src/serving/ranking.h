// Given candidates, in the order of what a ranking model predicts of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/hstu/ranking_model.h"
#include "serving/request_window.h"

namespace seqfuse::serving {

struct RankedItem {
  int64_t item = 0;
  // By name; the first one orders the items. Classes: "expected class", the mean label. One task:
  // "probability". Several tasks: the probability of each action, by the action's name.
  std::vector<std::pair<std::string, double>> scores;
};

// The top_k of the window's candidates, best first; equal scores in the order of the request.
// action_names: Manifest::action_names.
std::vector<RankedItem> rank(models::hstu::RankingModel& model, const RequestWindow& window,
                             const std::vector<std::string>& action_names, int64_t top_k);

}  // namespace seqfuse::serving
