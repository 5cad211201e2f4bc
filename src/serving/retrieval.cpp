#include "serving/retrieval.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace seqfuse::serving {
namespace {

constexpr int64_t kTile = 4096;          // items whose scores are held at a time
constexpr int64_t kSampledUsers = 1000;  // whose actions tell which is the most common

int64_t most_common_action(const data::Dataset& dataset) {
  std::vector<int64_t> counts(std::max<int64_t>(dataset.manifest().num_actions, 1));
  for (int64_t row = 0; row < std::min(dataset.num_users(), kSampledUsers); ++row) {
    for (const int64_t action : dataset.user(row).actions) ++counts[action];
  }
  return std::max_element(counts.begin(), counts.end()) - counts.begin();
}

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

data::Batch user_batch(const data::Dataset& dataset, int64_t user, int64_t max_history) {
  const auto length = std::ssize(dataset.user(user).items);
  const data::Sample sample{
      .user = user, .begin = std::max<int64_t>(0, length - max_history), .end = length};
  return data::make_batch(dataset, &sample, 1, 0);
}

data::Batch history_batch(const data::Dataset& dataset, std::span<const int64_t> items,
                          int64_t max_history) {
  if (std::ssize(items) > max_history) items = items.last(max_history);
  const data::Manifest& manifest = dataset.manifest();
  data::Batch batch;
  batch.users = {-1};
  batch.offsets = {0, std::ssize(items)};
  batch.items.assign(items.begin(), items.end());
  if (manifest.action_kind != data::ActionKind::none) {
    batch.actions.assign(items.size(), most_common_action(dataset));
  }
  if (manifest.has_timestamps) batch.timestamps.assign(items.size(), 0);
  batch.num_candidates = {0};
  batch.context.assign(manifest.context.size(), {0});
  return batch;
}

void append_candidates(data::Batch& batch, std::span<const int64_t> items) {
  batch.items.insert(batch.items.end(), items.begin(), items.end());
  if (!batch.actions.empty()) batch.actions.resize(batch.items.size(), 0);
  if (!batch.timestamps.empty())
    batch.timestamps.resize(batch.items.size(), batch.timestamps.back());
  batch.offsets.back() = std::ssize(batch.items);
  batch.num_candidates.back() = std::ssize(items);
}

}  // namespace seqfuse::serving
