#include <ATen/Context.h>

#include <limits>
#include <tuple>

#include "models/common/upload.h"
#include "training/evaluation/catalogue_scan.h"

namespace seqfuse::training {
namespace {

using at::Tensor;

constexpr int64_t kDeviceScores = int64_t{64} << 20;  // that a GPU holds at a time

// Disables TF32 for its lifetime.
class NoTf32 {
 public:
  NoTf32() : was_allowed_(at::globalContext().allowTF32CuBLAS()) {
    if (was_allowed_) at::globalContext().setAllowTF32CuBLAS(false);
  }
  ~NoTf32() {
    if (was_allowed_) at::globalContext().setAllowTF32CuBLAS(true);
  }
  NoTf32(const NoTf32&) = delete;
  NoTf32& operator=(const NoTf32&) = delete;

 private:
  bool was_allowed_;
};

// Tiles of scores on a GPU. The host knows excluded items, sorted by index, so that one indexed
// write per tile sets them to -infinity.
class DeviceScan {
 public:
  DeviceScan(const ScannedItems& items, const Tensor& queries, const ItemLists& excluded)
      : items_(items), queries_(queries) {
    const int64_t batch = queries.size(0);
    tile_ = std::clamp<int64_t>(kDeviceScores / std::max<int64_t>(batch, 1), 1, items.size());
    std::vector<std::pair<int64_t, int64_t>> pairs;  // item index, query
    num_excluded_.resize(batch);
    for (int64_t b = 0; b < batch; ++b) {
      for (const int64_t item : excluded[b]) {
        const int64_t place = items.place_of(item);
        if (place < 0) continue;
        pairs.emplace_back(place, b);
        ++num_excluded_[b];
      }
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [place, b] : pairs) {
      const int64_t begin = place / tile_ * tile_;
      const int64_t width = std::min(items.size(), begin + tile_) - begin;
      excluded_places_.push_back(place);
      excluded_cells_.push_back(b * width + place - begin);
    }
  }

  // Adds the tensors to upload.
  void add_to(models::Upload& upload) { upload.add(excluded_cells_, cells_); }

  int64_t num_tiles() const { return (items_.size() + tile_ - 1) / tile_; }
  const std::vector<int64_t>& num_excluded() const { return num_excluded_; }  // of each query

  // Calls visit(begin, scores [B, size of the tile]) for each tile.
  template <class Visit>
  void for_each_tile(const Visit& visit) const {
    for (int64_t begin = 0; begin < items_.size(); begin += tile_) {
      const int64_t end = std::min(items_.size(), begin + tile_);
      visit(begin, queries_.mm(items_.rows(begin, end).t()));
    }
  }

  void exclude(int64_t begin, Tensor& scores) const {
    const auto first = std::lower_bound(excluded_places_.begin(), excluded_places_.end(), begin);
    const auto last = std::lower_bound(first, excluded_places_.end(), begin + tile_);
    if (first == last) return;
    const int64_t from = first - excluded_places_.begin(), to = last - excluded_places_.begin();
    scores.view(-1).index_fill_(0, cells_.slice(0, from, to),
                                -std::numeric_limits<double>::infinity());
  }

 private:
  const ScannedItems& items_;
  const Tensor& queries_;
  int64_t tile_;
  std::vector<int64_t> num_excluded_, excluded_places_, excluded_cells_;  // cells of a tile
  Tensor cells_;
};

}  // namespace

Tensor ranks_on_device(const Tensor& rows, const Tensor& queries, std::span<const int64_t> targets,
                       const ItemLists& excluded) {
  const NoTf32 full_precision;
  const ScannedItems items(rows, {});
  const std::vector<int64_t> target_list(targets.begin(), targets.end());
  ItemLists others = excluded;  // the target is never excluded
  for (size_t b = 0; b < targets.size(); ++b) std::erase(others[b], targets[b]);
  DeviceScan scan(items, queries, others);
  Tensor target_items, num_excluded;
  models::Upload upload(rows.device());
  upload.add(target_list, target_items);
  upload.add(scan.num_excluded(), num_excluded);
  scan.add_to(upload);
  upload.send();

  Tensor target_scores = queries.new_zeros({queries.size(0)}), below = at::zeros_like(target_items);
  const auto find_targets = [&](int64_t begin, const Tensor& scores) {
    const Tensor columns = target_items - (begin + 1);
    const Tensor inside = columns.ge(0).logical_and(columns.lt(scores.size(1)));
    const Tensor found = scores.gather(1, columns.clamp(0, scores.size(1) - 1).unsqueeze(1));
    target_scores = at::where(inside, found.squeeze(1), target_scores);
  };
  const auto count_below = [&](int64_t begin, Tensor& scores) {
    scan.exclude(begin, scores);
    below.add_(scores.lt(target_scores.unsqueeze(1)).sum(1));
  };
  const bool one_tile = scan.num_tiles() == 1;
  if (!one_tile) scan.for_each_tile(find_targets);
  scan.for_each_tile([&](int64_t begin, Tensor scores) {
    if (one_tile) find_targets(begin, scores);
    count_below(begin, scores);
  });
  // Nothing is below NaN, not even excluded items.
  below = at::where(target_scores.isnan(), num_excluded, below);
  return at::where(target_items.eq(0), rows.size(0), items.size() - below);
}

void top_on_device(const Tensor& rows, const Tensor& queries, int64_t k, const ItemLists& excluded,
                   const ScannedItems& items, TopItems& top) {
  constexpr double kExcluded = -std::numeric_limits<double>::infinity();
  const NoTf32 full_precision;
  DeviceScan scan(items, queries, excluded);
  models::Upload upload(rows.device());
  scan.add_to(upload);
  upload.send();
  Tensor best_scores, best_places;
  scan.for_each_tile([&](int64_t begin, Tensor scores) {
    scan.exclude(begin, scores);
    scores.nan_to_num_(kExcluded, std::numeric_limits<double>::infinity(), kExcluded);
    auto [tile_scores, tile_places] = scores.topk(std::min(k, scores.size(1)), 1);
    tile_places += begin;
    if (best_scores.defined()) {
      tile_scores = at::cat({best_scores, tile_scores}, 1);
      tile_places = at::cat({best_places, tile_places}, 1);
    }
    Tensor order;
    std::tie(best_scores, order) = tile_scores.topk(std::min(k, tile_scores.size(1)), 1);
    best_places = tile_places.gather(1, order);
  });
  best_scores = best_scores.to(at::kDouble).cpu().contiguous();
  best_places = best_places.cpu().contiguous();
  const int64_t width = best_scores.size(1);
  std::vector<ScoredItem> found;
  for (int64_t b = 0; b < best_scores.size(0); ++b) {
    const double* scores = best_scores.const_data_ptr<double>() + b * width;
    const int64_t* places = best_places.const_data_ptr<int64_t>() + b * width;
    found.clear();
    for (int64_t i = 0; i < width; ++i) {
      if (scores[i] != kExcluded) found.push_back({items.at(places[i]), scores[i]});
    }
    std::sort(found.begin(), found.end(), better);
    top.add(found);
  }
}

}  // namespace seqfuse::training
