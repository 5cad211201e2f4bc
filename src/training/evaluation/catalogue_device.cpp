#include <ATen/Context.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "models/common/upload.h"
#include "training/evaluation/catalogue_scan.h"

namespace seqfuse::training {
namespace {

using at::Tensor;

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

// Tiles of scores on a GPU. The host knows the excluded items, by tile, so that one indexed write
// per tile sets their scores to -infinity.
class DeviceScan {
 public:
  // kept: empty, or per query an item that is not excluded.
  DeviceScan(const ScannedItems& items, const Tensor& queries, const ItemLists& excluded,
             std::span<const int64_t> kept, int64_t scores_at_once)
      : items_(items), queries_(queries) {
    const int64_t batch = queries.size(0);
    tile_ = std::clamp<int64_t>(scores_at_once / std::max<int64_t>(batch, 1), 1, items.size());
    first_cell_.resize(num_tiles() + 1);
    num_excluded_.resize(batch);
    for_each_excluded(excluded, kept, [&](int64_t b, int64_t tile, int64_t /*column*/) {
      ++first_cell_[tile + 1];
      ++num_excluded_[b];
    });
    std::partial_sum(first_cell_.begin(), first_cell_.end(), first_cell_.begin());
    excluded_cells_.resize(first_cell_.back());
    std::vector<int64_t> next = first_cell_;
    for_each_excluded(excluded, kept, [&](int64_t b, int64_t tile, int64_t column) {
      const int64_t width = std::min(tile_, items_.size() - tile * tile_);
      excluded_cells_[next[tile]++] = b * width + column;
    });
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
    const int64_t from = first_cell_[begin / tile_], to = first_cell_[begin / tile_ + 1];
    if (from == to) return;
    scores.view(-1).index_fill_(0, cells_.slice(0, from, to),
                                -std::numeric_limits<double>::infinity());
  }

 private:
  // Calls visit(query, tile, column in the tile) for each excluded item that is scanned.
  template <class Visit>
  void for_each_excluded(const ItemLists& excluded, std::span<const int64_t> kept,
                         const Visit& visit) const {
    for (int64_t b = 0; b < std::ssize(num_excluded_); ++b) {
      int64_t tile = 0;
      for (const int64_t item : excluded[b]) {
        const int64_t place = items_.place_of(item);
        if (place < 0 || (!kept.empty() && item == kept[b])) continue;
        while (place >= (tile + 1) * tile_) ++tile;  // items are ascending
        visit(b, tile, place - tile * tile_);
      }
    }
  }

  const ScannedItems& items_;
  const Tensor& queries_;
  int64_t tile_;
  std::vector<int64_t> num_excluded_;    // [B]
  std::vector<int64_t> excluded_cells_;  // places in a tile's scores, tile by tile
  std::vector<int64_t> first_cell_;      // of each tile in excluded_cells_, and their number
  Tensor cells_;                         // excluded_cells_ on the device
};

}  // namespace

Tensor ranks_on_device(const Tensor& rows, const Tensor& queries, std::span<const int64_t> targets,
                       const ItemLists& excluded, int64_t scores_at_once) {
  const NoTf32 full_precision;
  const ScannedItems items(rows, {});
  const std::vector<int64_t> target_list(targets.begin(), targets.end());
  DeviceScan scan(items, queries, excluded, /*kept=*/targets, scores_at_once);
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
                   const ScannedItems& items, TopItems& top, int64_t scores_at_once) {
  constexpr double kExcluded = -std::numeric_limits<double>::infinity();
  const NoTf32 full_precision;
  DeviceScan scan(items, queries, excluded, /*kept=*/{}, scores_at_once);
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
