#include "distributed/work_balance.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace seqfuse::distributed {

std::vector<std::vector<int64_t>> deal_by_cost(std::span<const double> costs, int parts) {
  std::vector<int64_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return costs[a] > costs[b]; });
  using Load = std::pair<double, int>;  // cost so far, part
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int part = 0; part < parts; ++part) loads.emplace(0, part);
  std::vector<std::vector<int64_t>> dealt(parts);
  for (const int64_t index : order) {
    const auto [cost, part] = loads.top();
    loads.pop();
    dealt[part].push_back(index);
    loads.emplace(cost + costs[index], part);
  }
  for (std::vector<int64_t>& part : dealt) std::sort(part.begin(), part.end());
  return dealt;
}

std::vector<std::vector<int64_t>> deal_by_count(int64_t count, int parts) {
  std::vector<std::vector<int64_t>> dealt(parts);
  for (int part = 0; part < parts; ++part) {
    for (int64_t i = count * part / parts; i < count * (part + 1) / parts; ++i)
      dealt[part].push_back(i);
  }
  return dealt;
}

}  // namespace seqfuse::distributed
