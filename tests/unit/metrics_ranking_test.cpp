// AUC and GAUC against their definitions; GAUC through RankingMetrics.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "metrics/ranking_metrics.h"

namespace seqfuse::metrics::metrics_ranking_test {
namespace {

double pairwise_auc(const std::vector<float>& scores, const std::vector<uint8_t>& labels) {
  double right = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (!labels[i] || labels[j]) continue;
      ++pairs;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  return right / pairs;
}

TEST(Auc, EqualsTheShareOfOrderedPairs) {
  Random random(3);
  for (const uint64_t levels : {2, 5, 1000}) {
    std::vector<float> scores;
    std::vector<uint8_t> labels;
    for (int i = 0; i < 300; ++i) {
      scores.push_back(static_cast<float>(random.below(levels)));
      labels.push_back(random.below(3) == 0);
    }
    EXPECT_DOUBLE_EQ(auc(scores, labels), pairwise_auc(scores, labels));
  }
}

TEST(Auc, OneClassHasNone) {
  EXPECT_TRUE(std::isnan(auc(std::vector<float>{1, 2}, std::vector<uint8_t>{1, 1})));
  EXPECT_TRUE(std::isnan(auc({}, {})));
}

TEST(GroupedAuc, WeightsByImpressionsAndCountsSkippedUsers) {
  const std::vector<float> scores{1, 2, 1, 2, 3, 4, 5};
  const std::vector<uint8_t> labels{0, 1, 1, 0, 0, 1, 1};
  const std::vector<int64_t> users{7, 7, 3, 3, 3, 9, 9};  // AUC 1 of 2, 0 of 3, none of 2
  const GroupedAuc grouped = grouped_auc(scores, labels, users);
  EXPECT_DOUBLE_EQ(grouped.value, (1.0 * 2 + 0.0 * 3) / 5);
  EXPECT_EQ(grouped.groups, 3);
  EXPECT_EQ(grouped.skipped, 1);
}

TEST(RankingMetrics, GaucIsTheGroupedAucOfEachTask) {
  RankingMetrics metrics({RankingMetric::gauc, RankingMetric::auc}, 2, /*classes=*/false,
                         {"click", "like"});
  const std::vector<std::vector<float>> scores = {{1, 5}, {2, 1}, {3, 2}, {1, 9}};
  const std::vector<std::vector<uint8_t>> labels = {{0, 1}, {1, 0}, {0, 1}, {1, 0}};
  const std::vector<int64_t> users = {7, 7, 8, 8};
  for (size_t i = 0; i < scores.size(); ++i) metrics.add(users[i], scores[i], labels[i]);
  const Metrics values = metrics.compute();
  // click: user 7 is in order, user 8 is not. like: the same.
  EXPECT_EQ(
      values,
      (Metrics{{"GAUC click", 0.5}, {"GAUC like", 0.5}, {"AUC click", 0.375}, {"AUC like", 0.5}}));
}

TEST(RankingMetrics, EveryTaskNeedsAName) {
  EXPECT_THROW(RankingMetrics({RankingMetric::auc}, 2, /*classes=*/false, {"click"}), Error);
}

}  // namespace
}  // namespace seqfuse::metrics::metrics_ranking_test
