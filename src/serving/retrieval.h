// The best items of a catalogue for a query, and the query of a user or of a history.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch/batch.h"
#include "data/dataset/dataset.h"

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

// One window: the newest max_history events of a user.
data::Batch user_batch(const data::Dataset& dataset, int64_t user, int64_t max_history);

// One window of the newest max_history of these items, oldest first, of a user nobody knows:
// context features are unknown (0), times are all equal, and each action is the dataset's most
// common one.
data::Batch history_batch(const data::Dataset& dataset, std::span<const int64_t> items,
                          int64_t max_history);

// Appends candidates to a batch of one window; their actions are not read by a model.
void append_candidates(data::Batch& batch, std::span<const int64_t> items);

}  // namespace seqfuse::serving
