// The best items of a catalogue for queries, and for a request.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/hstu/retrieval_model.h"
#include "serving/request_window.h"

namespace seqfuse::serving {

struct ScoredItem {
  int64_t item = 0;
  double score = 0;
};

// The k best rows for each query by dot product, best first; equal scores by item. Fewer than k
// where the catalogue has fewer. Tiles of scores are merged and dropped: memory does not grow with
// items. queries [B, D]; item_rows [num_items + 1, D], row 0 is left out; excluded[b]: items left
// out.
std::vector<std::vector<ScoredItem>> top_items(const torch::Tensor& queries,
                                               const torch::Tensor& item_rows, int64_t k,
                                               const std::vector<std::vector<int64_t>>& excluded);

// The items of the catalogue for one window, without its history's unless include_seen.
std::vector<ScoredItem> retrieve(models::hstu::RetrievalModel& model, const RequestWindow& window,
                                 int64_t top_k, bool include_seen);

}  // namespace seqfuse::serving
