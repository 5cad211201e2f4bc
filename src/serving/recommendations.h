// The answer to one request: items, best first.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serving/predictor.h"
#include "serving/request_window.h"

namespace seqfuse::serving {

struct RankedItem {
  int64_t item = 0;
  // By name; items are ordered by the first score. Retrieval: "score", the cosine with the query.
  // Ranking: Predictor::score_names().
  std::vector<std::pair<std::string, double>> scores;
};

// The window's top_k items of the catalogue, without those in its history unless include_seen.
// Ties: lower item first.
std::vector<RankedItem> retrieve(const Predictor& predictor, const RequestWindow& window,
                                 int64_t top_k, bool include_seen);

// Places of n rows of `width` scores each, by the first score, best first; equal ones in their order,
// NaN last. Of these the first top_k.
std::vector<int64_t> best_first(const double* scores, int64_t n, int64_t width, int64_t top_k);

// The top_k of the window's candidates; equal scores in the order of the request. action_names:
// Manifest::action_names.
std::vector<RankedItem> rank(const Predictor& predictor, const RequestWindow& window,
                             const std::vector<std::string>& action_names, int64_t top_k);

}  // namespace seqfuse::serving
