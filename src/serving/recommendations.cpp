#include "serving/recommendations.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

namespace seqfuse::serving {

std::vector<RankedItem> retrieve(const Predictor& predictor, const RequestWindow& window,
                                 int64_t top_k, bool include_seen) {
  std::vector<int64_t> seen = include_seen ? std::vector<int64_t>() : window.seen;
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  const TopItems top = predictor.top_items(window.batch, top_k, ItemLists{std::move(seen)});
  std::vector<RankedItem> rows;
  for (const ScoredItem& scored : top[0]) rows.push_back({scored.item, {{"score", scored.score}}});
  return rows;
}

std::vector<RankedItem> rank(const Predictor& predictor, const RequestWindow& window,
                             const std::vector<std::string>& action_names, int64_t top_k) {
  const at::Tensor scores = predictor.candidate_scores(window.batch);
  const std::vector<std::string> names = predictor.score_names(action_names);
  const double* score = scores.const_data_ptr<double>();
  std::vector<RankedItem> ranked;
  for (const int64_t item : window.candidates) {
    RankedItem& row = ranked.emplace_back(RankedItem{.item = item});
    for (const std::string& name : names) row.scores.emplace_back(name, *score++);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedItem& a, const RankedItem& b) {
    return a.scores.front().second > b.scores.front().second;
  });
  if (std::ssize(ranked) > top_k) ranked.resize(top_k);
  return ranked;
}

}  // namespace seqfuse::serving
