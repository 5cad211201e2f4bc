// Popularity, first-order Markov and per-item means, against the same by brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/random.h"
#include "metrics/retrieval_metrics.h"
#include "tests/unit/memory_dataset.h"
#include "training/evaluation/baselines.h"

namespace seqfuse::training::baselines_counting_test {
namespace {

using data::MemoryDataset;

struct Logs {
  MemoryDataset dataset;
  data::Split split;
};

// Users of random lengths over few items, for many ties; each user's last event is the target.
Logs random_logs(int64_t users, int64_t items, uint64_t seed) {
  Random random(seed);
  std::vector<MemoryDataset::User> log;
  data::Split split;
  for (int64_t row = 0; row < users; ++row) {
    const auto length = 3 + static_cast<int64_t>(random.below(12));
    MemoryDataset::User user;
    for (int64_t i = 0; i < length; ++i) {
      user.items.push_back(
          1 + static_cast<int64_t>(std::min(random.below(items), random.below(items))));
    }
    split.train.push_back({.user = row, .begin = 1, .end = length - 1});
    split.test.push_back({.user = row, .begin = 1, .end = length, .num_candidates = 1});
    log.push_back(std::move(user));
  }
  log[0].items[0] = items;  // makes the catalogue complete
  return {MemoryDataset(std::move(log)), std::move(split)};
}

metrics::Metrics brute_force(const Logs& logs, const config::RetrievalArgs& args, bool markov) {
  std::map<int64_t, int64_t> popularity;
  std::map<std::pair<int64_t, int64_t>, int64_t> transitions;
  for (const data::Sample& sample : logs.split.train) {
    const auto items = logs.dataset.user(sample.user).items;
    for (int64_t i = sample.begin; i < sample.end; ++i) {
      ++popularity[items[i]];
      if (i > sample.begin) ++transitions[{items[i - 1], items[i]}];
    }
  }
  metrics::RetrievalMetrics metrics(args.eval_metrics);
  for (const data::Sample& sample : logs.split.test) {
    const auto items = logs.dataset.user(sample.user).items;
    const int64_t target = items[sample.end - 1], last = items[sample.end - 2];
    const std::set<int64_t> seen(items.begin(), items.begin() + (sample.end - 1));
    const auto score = [&](int64_t item) {
      return std::pair(markov ? transitions[{last, item}] : 0, popularity[item]);
    };
    int64_t rank = 1;
    for (int64_t item = 1; item <= logs.dataset.num_items(); ++item) {
      if (item == target || (args.filter_seen && seen.contains(item))) continue;
      rank += score(item) >= score(target);
    }
    metrics.add(rank);
  }
  return metrics.compute();
}

TEST(RetrievalBaselines, EqualBruteForce) {
  for (const bool filter_seen : {true, false}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const Logs logs = random_logs(60, 25, seed);
      config::RetrievalArgs args;
      args.eval_metrics = {"HR@1", "HR@5", "NDCG@10", "MRR"};
      args.filter_seen = filter_seen;
      const auto rows = retrieval_baselines(logs.dataset, logs.split, logs.split.test, args);
      ASSERT_EQ(rows.size(), 2U);
      for (size_t m = 0; m < args.eval_metrics.size(); ++m) {
        EXPECT_DOUBLE_EQ(rows[0].second[m].second, brute_force(logs, args, false)[m].second);
        EXPECT_DOUBLE_EQ(rows[1].second[m].second, brute_force(logs, args, true)[m].second);
      }
    }
  }
}

TEST(RankingBaselines, ItemMeansAreDrawnTowardsTheMean) {
  // Training: item 1 with labels 1 1 0, item 2 with 0. Test: item 1 (1), item 2 (0), item 3 (1).
  const MemoryDataset dataset(
      {{.items = {1, 1, 1, 2}, .actions = {1, 1, 0, 0}, .timestamps = {}, .context = {}},
       {.items = {1, 2, 3}, .actions = {1, 0, 1}, .timestamps = {}, .context = {}}});
  data::Split split;
  split.train = {{.user = 0, .begin = 0, .end = 4}};
  split.test = {{.user = 1, .begin = 0, .end = 3, .num_candidates = 3}};
  models::hstu::ModelSpec spec;
  spec.ranking.prediction_head_arch = {1};
  spec.ranking.eval_metrics = {metrics::RankingMetric::ne, metrics::RankingMetric::auc};
  const auto rows = ranking_baselines(dataset, split, split.test, spec);
  const double prior = 3.0 / 6;  // (2 + 1) / (4 + 2)
  const double p1 = (2 + 10 * prior) / 13, p2 = (0 + 10 * prior) / 11, p3 = prior;
  const double loss = -(std::log(p1) + std::log(1 - p2) + std::log(p3)) / 3;
  const double entropy = -(2.0 / 3 * std::log(2.0 / 3) + 1.0 / 3 * std::log(1.0 / 3));
  EXPECT_NEAR(rows[0].second[0].second, loss / entropy, 1e-6);
  EXPECT_DOUBLE_EQ(rows[0].second[1].second, 1);
}

TEST(RankingBaselines, LabelThreshold) {
  const MemoryDataset dataset(
      {{.items = {1, 2, 1, 2}, .actions = {4, 1, 3, 0}, .timestamps = {}, .context = {}}});
  data::Split split;
  split.train = {{.user = 0, .begin = 0, .end = 2}};
  split.test = {{.user = 0, .begin = 0, .end = 4, .num_candidates = 2}};
  models::hstu::ModelSpec spec;
  spec.ranking.prediction_head_arch = {1};
  spec.ranking.label_threshold = 3;
  spec.ranking.eval_metrics = {metrics::RankingMetric::auc, metrics::RankingMetric::acc};
  const auto rows = ranking_baselines(dataset, split, split.test, spec);
  EXPECT_DOUBLE_EQ(rows[0].second[0].second, 1);
  EXPECT_DOUBLE_EQ(rows[0].second[1].second, 1);
}

}  // namespace
}  // namespace seqfuse::training::baselines_counting_test
