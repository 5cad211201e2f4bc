#include "training/evaluation/catalogue.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "models/common/upload.h"

namespace seqfuse::training {
namespace {

using at::Tensor;
using Lists = std::span<const std::vector<int64_t>>;  // ItemLists of some queries

constexpr int64_t kTile = 1024;                       // items that a thread scores at a time
constexpr int64_t kQueries = 512;                     // queries that a thread scores at a time
constexpr int64_t kMostRuns = 256;                    // runs of tiles; each is one thread's task
constexpr int64_t kDeviceScores = int64_t{64} << 20;  // scores in GPU memory at a time

// The items to scan, in order: all of a catalogue, or those allowed.
class Items {
 public:
  Items(const Tensor& rows, std::span<const int64_t> allowed) : rows_(rows), allowed_(allowed) {
    SEQFUSE_CHECK(allowed.empty() || (allowed.front() >= 1 && allowed.back() < rows.size(0)),
                  "allowed items must be in 1..{}", rows.size(0) - 1);
  }

  int64_t size() const { return allowed_.empty() ? rows_.size(0) - 1 : std::ssize(allowed_); }
  int64_t at(int64_t place) const { return allowed_.empty() ? place + 1 : allowed_[place]; }

  // The index of an item, or -1.
  int64_t place_of(int64_t item) const {
    if (item < 1 || item >= rows_.size(0)) return -1;
    if (allowed_.empty()) return item - 1;
    const auto found = std::lower_bound(allowed_.begin(), allowed_.end(), item);
    return found != allowed_.end() && *found == item ? found - allowed_.begin() : -1;
  }

  // [end - begin, D]
  Tensor rows(int64_t begin, int64_t end) const {
    if (allowed_.empty()) return rows_.slice(0, begin + 1, end + 1);
    const auto ids = allowed_.subspan(begin, end - begin);
    return rows_.index_select(
        0, at::from_blob(const_cast<int64_t*>(ids.data()), {std::ssize(ids)}, at::kLong)
               .to(rows_.device()));
  }

 private:
  const Tensor& rows_;
  std::span<const int64_t> allowed_;
};

// Sums in order of the dimensions, so that equal rows have equal scores.
template <class T>
double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Counts scores that are not at most / not below the bound; this includes NaN.
template <class T>
int64_t count_above(const T* scores, int64_t n, T bound) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += !(scores[i] <= bound);
  return count;
}
template <class T>
int64_t count_not_below(const T* scores, int64_t n, T bound) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += !(scores[i] < bound);
  return count;
}
template <class T>
bool any_not_below(const T* scores, int64_t n, T bound) {
  int32_t any = 0;
  for (int64_t i = 0; i < n; ++i) any |= scores[i] >= bound;
  return any != 0;
}

bool better(const ScoredItem& a, const ScoredItem& b) {
  return std::pair(-a.score, a.item) < std::pair(-b.score, b.item);
}

// A query and the error bound of its products.
template <class T>
struct Query {
  const T* values;
  int64_t width;
  double margin;  // twice the largest error of a product: width * epsilon / 2 * |query| * |row|

  Query(const T* query, int64_t query_width, double largest_norm)
      : values(query),
        width(query_width),
        margin(static_cast<double>(width) * std::numeric_limits<T>::epsilon() *
               std::sqrt(dot(query, query, width)) * largest_norm) {}

  double score(const T* row) const { return dot(values, row, width); }
};

// One query's scores for a tile of items; -infinity for excluded items.
template <class T>
struct TileScores {
  int64_t begin, size;  // range of item indices
  T* scores;            // [size]
  int64_t excluded = 0;

  void exclude(int64_t place) {
    constexpr T kExcluded = -std::numeric_limits<T>::infinity();
    const int64_t column = place - begin;
    if (place < 0 || column < 0 || column >= size || scores[column] == kExcluded) return;
    scores[column] = kExcluded;
    ++excluded;
  }
};

// Calls visit(run, b, tile) for each tile of items and each query b; runs in parallel, the tiles of
// a run in order. Each run multiplies its own tile: products inside a parallel loop are serial, so
// threads synchronise once per scan instead of twice per tile.
template <class T, class Visit>
void scan_on_cpu(const Items& items, const Tensor& queries, Lists excluded, int64_t tiles_per_run,
                 const Visit& visit) {
  const int64_t tiles = (items.size() + kTile - 1) / kTile, batch = queries.size(0);
  parallel_tasks((tiles + tiles_per_run - 1) / tiles_per_run, [&](int64_t run) {
    const at::NoGradGuard no_grad;  // of this thread
    const int64_t last_tile = std::min(tiles, (run + 1) * tiles_per_run);
    for (int64_t begin = run * tiles_per_run * kTile; begin < last_tile * kTile; begin += kTile) {
      const int64_t end = std::min(items.size(), begin + kTile);
      const Tensor products = queries.mm(items.rows(begin, end).t());
      for (int64_t b = 0; b < batch; ++b) {
        TileScores<T> tile{begin, end - begin,
                           products.mutable_data_ptr<T>() + b * products.stride(0)};
        const auto& left_out = excluded[b];
        for (auto it = std::lower_bound(left_out.begin(), left_out.end(), items.at(begin));
             it != left_out.end() && *it <= items.at(end - 1); ++it) {
          tile.exclude(items.place_of(*it));
        }
        visit(run, b, tile);
      }
    }
  });
}

int64_t tiles_per_run(const Items& items) {
  const int64_t tiles = (items.size() + kTile - 1) / kTile;
  return std::max<int64_t>(1, (tiles + kMostRuns - 1) / kMostRuns);
}

int64_t num_runs(const Items& items) {
  const int64_t per_run = tiles_per_run(items) * kTile;
  return (items.size() + per_run - 1) / per_run;
}

// Counts a tile's items that are not below the target, which itself is set to -infinity.
template <class T>
int64_t count_tile(const TileScores<T>& tile, const Query<T>& query, const T* rows,
                   double target_score) {
  if (std::isnan(target_score)) return tile.size - tile.excluded;
  const T high = static_cast<T>(target_score + query.margin),
          low = static_cast<T>(target_score - query.margin);
  int64_t count = count_above(tile.scores, tile.size, high);
  if (count_not_below(tile.scores, tile.size, low) == count) return count;
  for (int64_t column = 0; column < tile.size; ++column) {
    const T score = tile.scores[column];
    if (score >= low && score <= high &&
        query.score(rows + (tile.begin + column + 1) * query.width) >= target_score) {
      ++count;
    }
  }
  return count;
}

template <class T>
void ranks_on_cpu(const Tensor& rows, double largest_norm, const Tensor& queries,
                  std::span<const int64_t> targets, Lists excluded, int64_t* ranks) {
  const Items items(rows, {});
  const int64_t batch = queries.size(0), width = rows.size(1);
  const T* row = rows.const_data_ptr<T>();
  std::vector<Query<T>> query;
  std::vector<double> target_scores;
  for (int64_t b = 0; b < batch; ++b) {
    query.emplace_back(queries.const_data_ptr<T>() + b * width, width, largest_norm);
    target_scores.push_back(query[b].score(row + targets[b] * width));
  }
  std::vector<std::vector<int64_t>> counts(num_runs(items), std::vector<int64_t>(batch));
  scan_on_cpu<T>(items, queries, excluded, tiles_per_run(items),
                 [&](int64_t run, int64_t b, TileScores<T>& tile) {
                   tile.exclude(items.place_of(targets[b]));
                   counts[run][b] += count_tile(tile, query[b], row, target_scores[b]);
                 });
  for (int64_t b = 0; b < batch; ++b) {
    ranks[b] = 1;
    for (const auto& count : counts) ranks[b] += count[b];
    if (targets[b] == 0) ranks[b] = rows.size(0);
  }
}

// The k best of the added items, by exact score.
template <class T>
class BestItems {
 public:
  void add_tile(const TileScores<T>& tile, const Items& items, const Query<T>& query, const T* rows,
                int64_t k) {
    constexpr int64_t kStep = 64;
    for (int64_t begin = 0; begin < tile.size; begin += kStep) {
      const int64_t end = std::min(tile.size, begin + kStep);
      if (!any_not_below(tile.scores + begin, end - begin, floor_)) continue;
      for (int64_t column = begin; column < end; ++column) {
        if (!(tile.scores[column] >= floor_)) continue;
        const int64_t item = items.at(tile.begin + column);
        const double score = query.score(rows + item * query.width);
        if (!std::isnan(score)) add({item, score}, k, query.margin);
      }
    }
  }

  const std::vector<ScoredItem>& items() const { return heap_; }

 private:
  void add(const ScoredItem& scored, int64_t k, double margin) {
    if (std::ssize(heap_) == k) {
      if (!better(scored, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), better);
      heap_.pop_back();
    }
    heap_.push_back(scored);
    std::push_heap(heap_.begin(), heap_.end(), better);  // the worst is first
    if (std::ssize(heap_) == k) floor_ = static_cast<T>(heap_.front().score - margin);
  }

  std::vector<ScoredItem> heap_;
  T floor_ = std::numeric_limits<T>::lowest();  // products below it are not among the best
};

template <class T>
void top_on_cpu(const Tensor& rows, double largest_norm, const Tensor& queries, int64_t k,
                Lists excluded, const Items& items, TopItems& top) {
  const int64_t batch = queries.size(0), width = rows.size(1);
  const T* row = rows.const_data_ptr<T>();
  std::vector<Query<T>> query;
  for (int64_t b = 0; b < batch; ++b) {
    query.emplace_back(queries.const_data_ptr<T>() + b * width, width, largest_norm);
  }
  std::vector<std::vector<BestItems<T>>> best(num_runs(items), std::vector<BestItems<T>>(batch));
  scan_on_cpu<T>(items, queries, excluded, tiles_per_run(items),
                 [&](int64_t run, int64_t b, const TileScores<T>& tile) {
                   best[run][b].add_tile(tile, items, query[b], row, k);
                 });
  std::vector<ScoredItem> merged;
  for (int64_t b = 0; b < batch; ++b) {
    merged.clear();
    for (const auto& run : best) {
      merged.insert(merged.end(), run[b].items().begin(), run[b].items().end());
    }
    const auto end = merged.begin() + std::min(k, std::ssize(merged));
    std::partial_sort(merged.begin(), end, merged.end(), better);
    top.add({merged.begin(), end});
  }
}

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
  DeviceScan(const Items& items, const Tensor& queries, const ItemLists& excluded)
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
  const Items& items_;
  const Tensor& queries_;
  int64_t tile_;
  std::vector<int64_t> num_excluded_, excluded_places_, excluded_cells_;  // cells of a tile
  Tensor cells_;
};

Tensor ranks_on_device(const Tensor& rows, const Tensor& queries, std::span<const int64_t> targets,
                       const ItemLists& excluded) {
  const NoTf32 full_precision;
  const Items items(rows, {});
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
                   const Items& items, TopItems& top) {
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

// Calls part(first query, queries) for each block of queries.
template <class Part>
void for_each_block(const Tensor& queries, const Part& part) {
  for (int64_t begin = 0; begin < queries.size(0); begin += kQueries) {
    part(begin, queries.slice(0, begin, std::min(queries.size(0), begin + kQueries)));
  }
}

}  // namespace

Catalogue::Catalogue(const Tensor& item_rows) : rows_(item_rows.detach().contiguous()) {
  SEQFUSE_CHECK(rows_.dim() == 2 && rows_.size(0) > 1,
                "a catalogue needs item rows [items + 1, D]");
  largest_norm_ = rows_.norm(2, 1).nan_to_num(0, 0, 0).max().item<double>();
}

Tensor Catalogue::ranks(const Tensor& queries, std::span<const int64_t> targets,
                        const ItemLists& excluded) const {
  const at::NoGradGuard no_grad;
  const Tensor dense = queries.detach().contiguous();
  if (rows_.is_cuda()) return ranks_on_device(rows_, dense, targets, excluded);
  Tensor ranks = at::empty({dense.size(0)}, at::kLong);
  for_each_block(dense, [&](int64_t begin, const Tensor& block) {
    const Lists lists = Lists(excluded).subspan(begin, block.size(0));
    AT_DISPATCH_FLOATING_TYPES(rows_.scalar_type(), "catalogue_ranks", [&] {
      ranks_on_cpu<scalar_t>(rows_, largest_norm_, block, targets.subspan(begin, block.size(0)),
                             lists, ranks.mutable_data_ptr<int64_t>() + begin);
    });
  });
  return ranks;
}

TopItems Catalogue::top(const Tensor& queries, int64_t k, const ItemLists& excluded,
                        std::span<const int64_t> allowed) const {
  const at::NoGradGuard no_grad;
  const Tensor dense = queries.detach().contiguous();
  const Items items(rows_, allowed);
  k = std::min(k, items.size());
  TopItems top;
  if (rows_.is_cuda()) {
    top_on_device(rows_, dense, k, excluded, items, top);
    return top;
  }
  for_each_block(dense, [&](int64_t begin, const Tensor& block) {
    const Lists lists = Lists(excluded).subspan(begin, block.size(0));
    AT_DISPATCH_FLOATING_TYPES(rows_.scalar_type(), "catalogue_top", [&] {
      top_on_cpu<scalar_t>(rows_, largest_norm_, block, k, lists, items, top);
    });
  });
  return top;
}

}  // namespace seqfuse::training
