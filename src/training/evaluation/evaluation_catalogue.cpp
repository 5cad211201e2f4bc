#include "training/evaluation/evaluation_catalogue.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"

namespace seqfuse::training {
namespace {

constexpr int64_t kTile = 1024;  // items whose scores a thread holds at a time

// In order of the dimensions: equal rows have equal scores.
template <class T>
double dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// Scores that are not at most / not below the bound. NaN is neither, so it counts.
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

}  // namespace

CatalogueRanks::CatalogueRanks(const torch::Tensor& item_rows)
    : rows_(item_rows.detach().contiguous()) {
  SEQFUSE_CHECK(rows_.dim() == 2 && rows_.size(0) > 1,
                "a catalogue needs item rows [items + 1, D]");
  largest_norm_ = rows_.norm(2, 1).max().item<double>();
}

torch::Tensor CatalogueRanks::ranks(const torch::Tensor& queries, std::span<const int64_t> targets,
                                    const std::vector<std::vector<int64_t>>& excluded) const {
  return rows_.is_cuda() ? ranks_on_device(queries, targets, excluded)
                         : ranks_on_cpu(queries, targets, excluded);
}

torch::Tensor CatalogueRanks::ranks_on_cpu(
    const torch::Tensor& queries, std::span<const int64_t> targets,
    const std::vector<std::vector<int64_t>>& excluded) const {
  const torch::Tensor dense_queries = queries.detach().contiguous();
  const int64_t num_rows = rows_.size(0);
  // Each task multiplies and counts a tile of its own: products inside a parallel loop are serial,
  // so threads meet once per batch instead of twice per tile.
  std::vector<std::vector<int64_t>> above((num_rows - 2) / kTile + 1);
  parallel_tasks(std::ssize(above), [&](int64_t task) {
    const torch::NoGradGuard no_grad;  // of this thread
    const int64_t begin = 1 + task * kTile;
    const torch::Tensor tile = rows_.slice(0, begin, std::min(num_rows, begin + kTile));
    const torch::Tensor scores = dense_queries.mm(tile.t());
    AT_DISPATCH_FLOATING_TYPES(rows_.scalar_type(), "catalogue_ranks", [&] {
      above[task] = count_tile<scalar_t>(scores, begin, dense_queries, targets, excluded);
    });
  });
  torch::Tensor ranks = torch::ones({std::ssize(targets)}, torch::kLong);
  int64_t* rank = ranks.mutable_data_ptr<int64_t>();
  for (size_t b = 0; b < targets.size(); ++b) {
    for (const std::vector<int64_t>& counts : above) rank[b] += counts[b];
    if (targets[b] == 0) rank[b] = num_rows;
  }
  return ranks;
}

template <class T>
std::vector<int64_t> CatalogueRanks::count_tile(
    const torch::Tensor& scores, int64_t tile_begin, const torch::Tensor& queries,
    std::span<const int64_t> targets, const std::vector<std::vector<int64_t>>& excluded) const {
  const int64_t width = rows_.size(1), items = scores.size(1);
  const T* rows = rows_.const_data_ptr<T>();
  std::vector<int64_t> counts(targets.size());
  for (int64_t b = 0; b < std::ssize(targets); ++b) {
    T* row_scores = scores.mutable_data_ptr<T>() + b * items;
    const T* query = queries.const_data_ptr<T>() + b * width;
    int64_t left_out = 0;
    const auto leave_out = [&](int64_t item) {
      const int64_t column = item - tile_begin;
      if (column < 0 || column >= items) return;
      row_scores[column] = -std::numeric_limits<T>::infinity();
      ++left_out;
    };
    const std::vector<int64_t>& seen = excluded[b];
    for (auto it = std::lower_bound(seen.begin(), seen.end(), tile_begin);
         it != seen.end() && *it < tile_begin + items; ++it) {
      if (*it != targets[b]) leave_out(*it);
    }
    leave_out(targets[b]);

    // The product's error is below width * epsilon / 2 * |query| * |row|; twice that, to be safe.
    const double target_score = dot(query, rows + targets[b] * width, width);
    if (std::isnan(target_score)) {
      counts[b] = items - left_out;
      continue;
    }
    const double query_norm = std::sqrt(dot(query, query, width));
    const double margin =
        static_cast<double>(width) * std::numeric_limits<T>::epsilon() * query_norm * largest_norm_;
    const T high = static_cast<T>(target_score + margin),
            low = static_cast<T>(target_score - margin);
    counts[b] = count_above(row_scores, items, high);
    if (count_not_below(row_scores, items, low) == counts[b]) continue;
    for (int64_t column = 0; column < items; ++column) {
      const T score = row_scores[column];
      if (score >= low && score <= high &&
          dot(query, rows + (tile_begin + column) * width, width) >= target_score) {
        ++counts[b];
      }
    }
  }
  return counts;
}

}  // namespace seqfuse::training
