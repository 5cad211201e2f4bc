#include "serving/batch/popular_items.h"

#include <algorithm>
#include <numeric>

#include "data/batch/split.h"

namespace seqfuse::serving {

std::vector<int64_t> popular_items(const data::Dataset& dataset) {
  std::vector<int64_t> events(dataset.num_items() + 1);
  for (int64_t row = 0; row < dataset.num_users(); ++row) {
    const auto items = dataset.user(row).items;
    const data::Sample whole{.user = row, .end = std::ssize(items)};
    dataset.check_unchanged(&whole, 1);
    for (const int64_t item : items) ++events[item];
  }
  std::vector<int64_t> order(dataset.num_items());
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return events[a] > events[b]; });
  return order;
}

}  // namespace seqfuse::serving
