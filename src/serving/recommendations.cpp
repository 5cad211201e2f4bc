#include "serving/recommendations.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
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

std::vector<int64_t> best_first(const double* scores, int64_t n, int64_t width, int64_t top_k) {
  std::vector<int64_t> places(n);
  std::iota(places.begin(), places.end(), 0);
  const auto score = [&](int64_t place) {
    const double value = scores[place * width];
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  };
  std::stable_sort(places.begin(), places.end(),
                   [&](int64_t a, int64_t b) { return score(a) > score(b); });
  if (n > top_k) places.resize(top_k);
  return places;
}

std::vector<RankedItem> rank(const Predictor& predictor, const RequestWindow& window,
                             const std::vector<std::string>& action_names, int64_t top_k) {
  const at::Tensor scores = predictor.candidate_scores(window.batch);
  const std::vector<std::string> names = predictor.score_names(action_names);
  const double* score = scores.const_data_ptr<double>();
  const int64_t width = std::ssize(names);
  std::vector<RankedItem> ranked;
  for (const int64_t place : best_first(score, std::ssize(window.candidates), width, top_k)) {
    RankedItem& row = ranked.emplace_back(RankedItem{.item = window.candidates[place]});
    for (int64_t s = 0; s < width; ++s) row.scores.emplace_back(names[s], score[place * width + s]);
  }
  return ranked;
}

}  // namespace seqfuse::serving
