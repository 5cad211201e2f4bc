#include "distributed/work_balance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace seqfuse::distributed::work_balance_test {
namespace {

// Typical history lengths: lognormal, a few of them a hundred times the median.
std::vector<int64_t> long_tailed_lengths(int64_t count, uint64_t seed) {
  Random random(seed);
  const auto uniform = [&] { return (static_cast<double>(random()) + 0.5) / 4294967296.0; };
  std::vector<int64_t> lengths(count);
  for (int64_t& length : lengths) {
    const double normal =
        std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    length = std::clamp<int64_t>(std::llround(std::exp(4.5 + 1.2 * normal)), 1, 4096);
  }
  return lengths;
}

// The largest part's cost divided by the mean: how much slower a step is.
double imbalance(const std::vector<std::vector<int64_t>>& parts, const std::vector<double>& costs) {
  double most = 0;
  for (const std::vector<int64_t>& part : parts) {
    double sum = 0;
    for (const int64_t index : part) sum += costs[index];
    most = std::max(most, sum);
  }
  return most * static_cast<double>(parts.size()) /
         std::accumulate(costs.begin(), costs.end(), 0.0);
}

void expect_each_once(const std::vector<std::vector<int64_t>>& parts, int64_t count) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& part : parts) {
    EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<int64_t> expected(count);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(WorkBalance, EverySampleIsDealtOnce) {
  for (const int parts : {1, 2, 3, 8}) {
    for (const int64_t count : {0, 1, 2, 7, 64}) {
      std::vector<double> costs;
      for (const int64_t length : long_tailed_lengths(count, 1))
        costs.push_back(WorkModel{100}.cost(length));
      expect_each_once(deal_by_cost(costs, parts), count);
      expect_each_once(deal_by_count(count, parts), count);
    }
  }
}

TEST(WorkBalance, LongTailedLengthsAreWithinOnePercentOfEqual) {
  const WorkModel model = WorkModel::of_hstu(/*hidden_size=*/256);
  double worst = 0, by_count = 0;
  int64_t batches = 0;
  for (const int parts : {2, 4, 8}) {
    for (uint64_t seed = 0; seed < 50; ++seed, ++batches) {
      std::vector<double> costs;
      for (const int64_t length : long_tailed_lengths(128 * parts, seed))
        costs.push_back(model.cost(length));
      worst = std::max(worst, imbalance(deal_by_cost(costs, parts), costs));
      by_count += imbalance(deal_by_count(std::ssize(costs), parts), costs);
    }
  }
  by_count /= static_cast<double>(batches);
  RecordProperty("worst_by_cost", std::to_string(worst));
  RecordProperty("mean_by_count", std::to_string(by_count));
  EXPECT_LT(worst, 1.01);
  EXPECT_GT(by_count, 1.2);  // the potential gain
}

TEST(WorkBalance, OneHugeWindowIsAloneAndTheSameCostsAreDealtTheSameWay) {
  const std::vector<double> costs = {1, 1, 100, 1, 1, 1};
  EXPECT_THAT(deal_by_cost(costs, 2),
              testing::ElementsAre(testing::ElementsAre(2), testing::ElementsAre(0, 1, 3, 4, 5)));
  EXPECT_EQ(deal_by_cost(costs, 3), deal_by_cost(costs, 3));
}

}  // namespace
}  // namespace seqfuse::distributed::work_balance_test
