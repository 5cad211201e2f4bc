#include "serving/retrieval.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace seqfuse::serving {
namespace {

constexpr int64_t kTile = 4096;  // items whose scores are held at a time

}  // namespace

std::vector<std::vector<ScoredItem>> top_items(const torch::Tensor& queries,
                                               const torch::Tensor& item_rows, int64_t k,
                                               const std::vector<std::vector<int64_t>>& excluded) {
  const torch::NoGradGuard no_grad;
  constexpr double kLeftOut = -std::numeric_limits<double>::infinity();
  torch::Tensor best_scores, best_items;
  for (int64_t begin = 1; begin < item_rows.size(0); begin += kTile) {
    const torch::Tensor tile =
        item_rows.slice(0, begin, std::min(item_rows.size(0), begin + kTile));
    torch::Tensor scores = queries.mm(tile.t());
    for (size_t b = 0; b < excluded.size(); ++b) {
      for (const int64_t item : excluded[b]) {
        const int64_t column = item - begin;
        if (column >= 0 && column < tile.size(0)) scores[b][column].fill_(kLeftOut);
      }
    }
    auto [tile_scores, tile_items] = scores.topk(std::min(k, tile.size(0)), 1);
    tile_items += begin;
    if (best_scores.defined()) {
      tile_scores = torch::cat({best_scores, tile_scores}, 1);
      tile_items = torch::cat({best_items, tile_items}, 1);
    }
    torch::Tensor order;
    std::tie(best_scores, order) = tile_scores.topk(std::min(k, tile_scores.size(1)), 1);
    best_items = tile_items.gather(1, order);
  }
  best_scores = best_scores.to(torch::kDouble).contiguous();
  best_items = best_items.contiguous();
  std::vector<std::vector<ScoredItem>> result(queries.size(0));
  for (int64_t b = 0; b < queries.size(0); ++b) {
    const double* scores = best_scores.const_data_ptr<double>() + b * best_scores.size(1);
    const int64_t* items = best_items.const_data_ptr<int64_t>() + b * best_items.size(1);
    for (int64_t i = 0; i < best_scores.size(1); ++i) {
      if (scores[i] != kLeftOut) result[b].push_back({items[i], scores[i]});
    }
    std::sort(result[b].begin(), result[b].end(), [](const ScoredItem& x, const ScoredItem& y) {
      return std::pair(-x.score, x.item) < std::pair(-y.score, y.item);
    });
  }
  return result;
}

std::vector<ScoredItem> retrieve(models::hstu::RetrievalModel& model, const RequestWindow& window,
                                 int64_t top_k, bool include_seen) {
  const torch::NoGradGuard no_grad;
  return top_items(model.query(window.batch), model.item_rows(), top_k,
                   {include_seen ? std::vector<int64_t>() : window.seen})
      .front();
}

}  // namespace seqfuse::serving
