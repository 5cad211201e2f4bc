#include "report/dataset_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

namespace seqfuse::report {
namespace {

constexpr int kRanksPerDecade = 40;

// sorted: ascending lengths.
std::vector<LengthBucket> length_buckets(const std::vector<int64_t>& sorted) {
  std::vector<LengthBucket> buckets;
  for (const int64_t length : sorted) {
    const int64_t low = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length)));
    // Keep empty buckets between two lengths, so that the axis has no gaps.
    while (buckets.empty() || buckets.back().low < low) {
      const int64_t next = buckets.empty() ? low : std::max<int64_t>(buckets.back().low * 2, 1);
      buckets.push_back({next, std::max<int64_t>(2 * next - 1, 0), 0});
    }
    ++buckets.back().users;
  }
  return buckets;
}

// sorted: descending counts, none 0.
std::vector<RankedItem> popularity_curve(const std::vector<int64_t>& sorted) {
  std::vector<RankedItem> curve;
  const auto size = static_cast<int64_t>(sorted.size());
  for (int64_t i = 0;; ++i) {
    const double spread = std::pow(10.0, static_cast<double>(i) / kRanksPerDecade);
    const int64_t rank = std::min<int64_t>(std::llround(spread), size);
    if (rank == 0) return curve;
    if (curve.empty() || curve.back().rank < rank) {
      curve.push_back({rank, sorted[static_cast<size_t>(rank - 1)]});
    }
    if (rank == size) return curve;
  }
}

}  // namespace

DatasetStatistics dataset_statistics(const data::Dataset& dataset) {
  DatasetStatistics result;
  result.name = dataset.manifest().dataset_name;
  result.hash = dataset.manifest().hash;
  result.users = dataset.num_users();
  result.items = dataset.num_items();

  std::vector<int64_t> lengths, counts(static_cast<size_t>(dataset.num_items()) + 1);
  lengths.reserve(static_cast<size_t>(dataset.num_users()));
  for (int64_t row = 0; row < dataset.num_users(); ++row) {
    const auto items = dataset.user(row).items;
    lengths.push_back(std::ssize(items));
    for (const int64_t item : items) ++counts[static_cast<size_t>(item)];
  }
  result.events = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::sort(lengths.begin(), lengths.end());
  if (!lengths.empty()) {
    result.min_length = lengths.front();
    result.median_length = lengths[lengths.size() / 2];
    result.max_length = lengths.back();
    result.mean_length = static_cast<double>(result.events) / static_cast<double>(result.users);
  }
  result.lengths = length_buckets(lengths);

  counts.erase(counts.begin());  // events of unknown items
  std::sort(counts.begin(), counts.end(), std::greater<>());
  const auto top = static_cast<std::ptrdiff_t>((counts.size() + 99) / 100);
  if (result.events > 0) {
    const int64_t top_events = std::accumulate(counts.begin(), counts.begin() + top, int64_t{0});
    result.top_percent_share = static_cast<double>(top_events) / static_cast<double>(result.events);
  }
  const auto zeros = std::find(counts.begin(), counts.end(), 0);
  result.items_without_events = counts.end() - zeros;
  counts.erase(zeros, counts.end());
  result.popularity = popularity_curve(counts);
  return result;
}

}  // namespace seqfuse::report
