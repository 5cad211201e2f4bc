#include <ATen/Dispatch.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "training/evaluation/catalogue_scan.h"

namespace seqfuse::training {
namespace {

using at::Tensor;
using Lists = std::span<const std::vector<int64_t>>;  // ItemLists of some queries

constexpr int64_t kTile = 1024;     // items whose scores a thread holds at a time
constexpr int64_t kMostRuns = 256;  // of tiles, each the work of one thread

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
void scan_on_cpu(const ScannedItems& items, const Tensor& queries, Lists excluded,
                 int64_t tiles_per_run, const Visit& visit) {
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

int64_t tiles_per_run(const ScannedItems& items) {
  const int64_t tiles = (items.size() + kTile - 1) / kTile;
  return std::max<int64_t>(1, (tiles + kMostRuns - 1) / kMostRuns);
}

int64_t num_runs(const ScannedItems& items) {
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
void find_ranks(const Tensor& rows, double largest_norm, const Tensor& queries,
                std::span<const int64_t> targets, Lists excluded, int64_t* ranks) {
  const ScannedItems items(rows, {});
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
  void add_tile(const TileScores<T>& tile, const ScannedItems& items, const Query<T>& query,
                const T* rows, int64_t k) {
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
void find_top(const Tensor& rows, double largest_norm, const Tensor& queries, int64_t k,
              Lists excluded, const ScannedItems& items, TopItems& top) {
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

}  // namespace

void ranks_on_cpu(const Tensor& rows, double largest_norm, const Tensor& queries,
                  std::span<const int64_t> targets, Lists excluded, int64_t* ranks) {
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "catalogue_ranks", [&] {
    find_ranks<scalar_t>(rows, largest_norm, queries, targets, excluded, ranks);
  });
}

void top_on_cpu(const Tensor& rows, double largest_norm, const Tensor& queries, int64_t k,
                Lists excluded, const ScannedItems& items, TopItems& top) {
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "catalogue_top", [&] {
    find_top<scalar_t>(rows, largest_norm, queries, k, excluded, items, top);
  });
}

}  // namespace seqfuse::training
