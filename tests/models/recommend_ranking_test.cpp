// The order and scores of candidates, given the model's logits.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serving/recommendations.h"
#include "tests/models/fake_models.h"

namespace seqfuse::serving::recommend_ranking_test {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// Candidates 4, 9, 2 after one event. An item's first logit is 2 minus its number, the others are
// higher by one each.
std::vector<RankedItem> ranked(int64_t num_tasks, int64_t width, int64_t top_k,
                               const std::vector<std::string>& action_names = {}) {
  models::hstu::ModelSpec spec;
  spec.ranking.num_tasks = num_tasks;
  spec.ranking.prediction_head_arch = {width};
  const auto model =
      std::make_shared<models::hstu::FakeRankingModel>(spec, [width](int64_t, int64_t item) {
        std::vector<float> logits;
        for (int64_t i = 0; i < width; ++i) logits.push_back(static_cast<float>(2 - item + i));
        return logits;
      });
  const RequestWindow window{.batch = {.users = {0},
                                       .offsets = {0, 4},
                                       .items = {1, 4, 9, 2},
                                       .actions = {0, 0, 0, 0},
                                       .num_candidates = {3}},
                             .candidates = {4, 9, 2}};
  return rank(Predictor(model, at::kCPU), window, action_names, top_k);
}

std::vector<int64_t> items(const std::vector<RankedItem>& rows) {
  std::vector<int64_t> items;
  for (const RankedItem& row : rows) items.push_back(row.item);
  return items;
}

TEST(Rank, TasksHaveProbabilitiesByTheNamesOfTheirActions) {
  const auto rows = ranked(3, 3, 10, {"click", "like"});
  EXPECT_EQ(items(rows), (std::vector<int64_t>{2, 4, 9}));
  for (const RankedItem& row : rows) {
    ASSERT_EQ(row.scores.size(), 3U);
    const std::vector<std::string> names = {"click", "like", "task 2"};
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(row.scores[i].first, names[i]);
      EXPECT_NEAR(row.scores[i].second, sigmoid(2.0 - static_cast<double>(row.item) + i), 1e-6);
    }
  }
}

TEST(Rank, OneTaskIsAProbability) {
  const auto rows = ranked(1, 1, 2, {"click", "like"});
  EXPECT_EQ(items(rows), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(rows[1].scores.front().first, "probability");
  EXPECT_NEAR(rows[1].scores.front().second, sigmoid(-2), 1e-6);
}

TEST(Rank, ClassesHaveTheMeanLabelAndEqualScoresKeepTheirOrder) {
  const auto rows = ranked(1, 3, 10);
  EXPECT_EQ(items(rows), (std::vector<int64_t>{4, 9, 2}));  // softmax does not see the shift
  const double e = std::exp(1.0);
  for (const RankedItem& row : rows) {
    EXPECT_EQ(row.scores.front().first, "expected class");
    EXPECT_NEAR(row.scores.front().second, (e + 2 * e * e) / (1 + e + e * e), 1e-6);
  }
}

}  // namespace
}  // namespace seqfuse::serving::recommend_ranking_test
