// Evaluations of ranking models: AUC, NE and ACC against their definitions; the table of metrics.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "metrics/ranking_metric.h"
#include "tests/models/fake_models.h"
#include "tests/unit/memory_dataset.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/metrics_table.h"

namespace seqfuse::training::metrics_ranking_test {
namespace {

using data::MemoryDataset;
using metrics::RankingMetric;

models::hstu::ModelSpec ranking_spec(int64_t width, int64_t tasks,
                                     std::vector<RankingMetric> metrics) {
  models::hstu::ModelSpec spec;
  spec.task = models::hstu::Task::ranking;
  spec.ranking.prediction_head_arch = {width};
  spec.ranking.num_tasks = tasks;
  spec.ranking.eval_metrics = std::move(metrics);
  return spec;
}

// One user, four candidates with these actions and items 1..4 after one event of history.
MemoryDataset one_user(std::vector<int64_t> actions) {
  actions.insert(actions.begin(), 0);
  return MemoryDataset(
      {{.items = {1, 1, 2, 3, 4}, .actions = actions, .timestamps = {}, .context = {}}});
}
const std::vector<data::Sample> kOneWindow{{.user = 0, .begin = 0, .end = 5, .num_candidates = 4}};

TEST(EvaluateRanking, TasksAreBitsOfTheAction) {
  const MemoryDataset dataset = one_user({1, 2, 3, 0});
  models::hstu::FakeRankingModel model(
      ranking_spec(2, 2, {RankingMetric::auc, RankingMetric::acc, RankingMetric::ne}),
      [](int64_t, int64_t item) {
        return std::vector<float>{item == 1 || item == 3 ? 2.F : -2.F, 0.F};
      });
  const Metrics metrics = evaluate_ranking(model, dataset, kOneWindow, {.batch_size = 4});
  ASSERT_EQ(metrics.size(), 6U);
  EXPECT_EQ(metrics[0].first, "AUC task 0");
  EXPECT_DOUBLE_EQ(metrics[0].second, 1);
  EXPECT_DOUBLE_EQ(metrics[1].second, 0.5);
  EXPECT_DOUBLE_EQ(metrics[2].second, 1);
  EXPECT_DOUBLE_EQ(metrics[3].second, 0.5);  // logit 0 predicts "no"
  EXPECT_NEAR(metrics[4].second, std::log1p(std::exp(-2.0)) / std::log(2.0), 1e-6);
  EXPECT_NEAR(metrics[5].second, 1, 1e-6);
}

TEST(EvaluateRanking, ClassesAreComparedOneAgainstTheRest) {
  const MemoryDataset dataset = one_user({0, 1, 2, 2});
  models::hstu::FakeRankingModel model(
      ranking_spec(3, 1, {RankingMetric::auc, RankingMetric::acc, RankingMetric::ne}),
      [](int64_t, int64_t item) {
        std::vector<float> logits(3, 0.F);
        logits[item == 4 ? 0 : item - 1] = item == 4 ? 5.F : 3.F;  // wrong for item 4
        return logits;
      });
  const Metrics metrics = evaluate_ranking(model, dataset, kOneWindow, {.batch_size = 4});
  ASSERT_EQ(metrics.size(), 3U);
  // Class 0: item 4 is wrongly above. Class 1: all in order. Class 2: item 4 is wrongly below.
  EXPECT_NEAR(metrics[0].second, (2.0 / 3 + 1 + 0.5) / 3, 1e-12);
  EXPECT_DOUBLE_EQ(metrics[1].second, 0.75);
  const double z = std::log(std::exp(3.0) + 2), wrong = std::log(std::exp(5.0) + 2);
  const double entropy = 0.5 * std::log(4.0) + 0.5 * std::log(2.0);
  EXPECT_NEAR(metrics[2].second, (3 * (z - 3) + wrong) / 4 / entropy, 1e-6);
}

TEST(EvaluateRanking, LogitsThatAreNotFiniteAreAnError) {
  const MemoryDataset dataset = one_user({0, 1, 0, 1});
  models::hstu::FakeRankingModel model(
      ranking_spec(1, 1, {RankingMetric::auc}),
      [](int64_t, int64_t) { return std::vector<float>{std::numeric_limits<float>::quiet_NaN()}; });
  EXPECT_THROW(evaluate_ranking(model, dataset, kOneWindow, {}), Error);
}

TEST(MetricsTable, MarksTheBestAndAligns) {
  const std::string table = format_metrics_table(
      {{"model", {{"HR@10", 0.3}, {"NE", 0.8}}},
       {"popularity", {{"HR@10", 0.1}, {"NE", std::numeric_limits<double>::quiet_NaN()}}},
       {"other", {{"HR@10", 0.3}, {"NE", 0.9}}}});
  EXPECT_EQ(table,
            "             HR@10       NE\n"
            "model       0.3000*  0.8000*\n"
            "popularity  0.1000        -\n"
            "other       0.3000*  0.9000\n"
            "* best\n");
}

TEST(MetricsTable, TurnsWhenItWouldBeTooWide) {
  Metrics many;
  for (int i = 0; i < 20; ++i) many.emplace_back("AUC task " + std::to_string(i), 0.5);
  const std::string table = format_metrics_table({{"model", many}, {"item mean", many}});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 22);
}

}  // namespace
}  // namespace seqfuse::training::metrics_ranking_test
