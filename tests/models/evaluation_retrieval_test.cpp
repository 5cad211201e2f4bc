// Ranks over the catalogue and the metrics derived from them, against brute force.
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "tests/models/fake_models.h"
#include "tests/unit/memory_dataset.h"
#include "training/evaluation/catalogue.h"
#include "training/evaluation/catalogue_scan.h"
#include "training/evaluation/evaluation.h"
#include "training/evaluation/target_counts.h"

namespace seqfuse::training::evaluation_retrieval_test {
namespace {

using data::MemoryDataset;

struct Problem {
  torch::Tensor queries, rows;
  std::vector<int64_t> targets;
  std::vector<std::vector<int64_t>> excluded;
};

// Rows are small integers, so that scores are exact and ties common.
Problem random_problem(int64_t users, int64_t items, torch::ScalarType dtype, uint64_t seed) {
  torch::manual_seed(static_cast<int64_t>(seed));
  Random random(seed);
  Problem problem{torch::randint(-3, 4, {users, 6}, dtype),
                  torch::randint(-3, 4, {items + 1, 6}, dtype),
                  {},
                  {}};
  for (int64_t b = 0; b < users; ++b) {
    problem.targets.push_back(1 + static_cast<int64_t>(random.below(items)));
    std::set<int64_t> excluded;
    for (int i = 0; i < 20; ++i) excluded.insert(1 + static_cast<int64_t>(random.below(items)));
    problem.excluded.emplace_back(excluded.begin(), excluded.end());
  }
  return problem;
}

int64_t brute_force_rank(const Problem& problem, int64_t b) {
  const auto scores = problem.rows.to(torch::kDouble).mv(problem.queries[b].to(torch::kDouble));
  const double target = scores[problem.targets[b]].item<double>();
  int64_t rank = 1;
  for (int64_t item = 1; item < problem.rows.size(0); ++item) {
    const bool left_out = std::ranges::binary_search(problem.excluded[b], item);
    if (item != problem.targets[b] && !left_out) rank += scores[item].item<double>() >= target;
  }
  return rank;
}

// Runs on every device of this machine.
void expect_ranks(const Problem& problem, const std::vector<int64_t>& expected) {
  std::vector<at::Device> devices{at::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(at::kCUDA);
  for (const at::Device device : devices) {
    const torch::Tensor ranks =
        Catalogue(problem.rows.to(device))
            .ranks(problem.queries.to(device), problem.targets, problem.excluded)
            .cpu();
    EXPECT_TRUE(at::equal(ranks, torch::tensor(expected))) << device << "\n" << ranks;
  }
  // The scan of a GPU also runs on the CPU; in many tiles, as of a large catalogue.
  for (const int64_t tile : {100, 4096}) {
    const int64_t scores = tile * problem.queries.size(0);
    const torch::Tensor ranks =
        ranks_on_device(problem.rows, problem.queries, problem.targets, problem.excluded, scores);
    EXPECT_TRUE(at::equal(ranks, torch::tensor(expected))) << "tiles of " << tile << "\n" << ranks;
  }
}

TEST(Catalogue, EqualBruteForceWithTiesAndSeenItemsAcrossTiles) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    for (const int64_t items : {1, 50, 4096, 4097, 9000}) {
      const Problem problem = random_problem(5, items, dtype, 7);
      std::vector<int64_t> expected;
      for (int64_t b = 0; b < 5; ++b) expected.push_back(brute_force_rank(problem, b));
      SCOPED_TRACE(items);
      expect_ranks(problem, expected);
    }
  }
}

TEST(Catalogue, EqualRowsTieWhateverTheirPlaceInATile) {
  torch::manual_seed(1);
  const torch::Tensor rows = torch::randn({1, 50}).repeat({10'001, 1});
  expect_ranks({.queries = torch::randn({3, 50}),
                .rows = rows,
                .targets = {1, 4999, 10'000},
                .excluded = std::vector<std::vector<int64_t>>(3)},
               {10'000, 10'000, 10'000});
}

TEST(Catalogue, NaNCountsAgainstTheModel) {
  torch::Tensor rows = torch::randn({101, 8});
  rows[50].fill_(std::numeric_limits<float>::quiet_NaN());
  const torch::Tensor queries = torch::full({1, 8}, std::numeric_limits<float>::quiet_NaN());
  expect_ranks({.queries = queries, .rows = rows, .targets = {3}, .excluded = {{}}}, {100});
}

TEST(Catalogue, UnknownTargetIsFoundByNobody) {
  const torch::Tensor rows = torch::ones({11, 4});
  expect_ranks({.queries = torch::ones({1, 4}), .rows = rows, .targets = {0}, .excluded = {{}}},
               {11});
}

// Two users; user 0's target is item 3, user 1's item 1. One dimension: scores are the items' rows.
struct TwoUsers {
  MemoryDataset dataset{{{.items = {1, 2, 3}, .actions = {}, .timestamps = {}, .context = {}},
                         {.items = {2, 4, 1}, .actions = {}, .timestamps = {}, .context = {}}}};
  std::vector<data::Sample> samples{{.user = 0, .begin = 1, .end = 3, .num_candidates = 1},
                                    {.user = 1, .begin = 1, .end = 3, .num_candidates = 1}};
  torch::Tensor rows = torch::tensor({0.F, 9.F, 8.F, 7.F, 6.F}).view({5, 1});

  Metrics evaluate(bool filter_seen, int64_t max_batches = -1) {
    models::hstu::ModelSpec spec;
    spec.retrieval.eval_metrics = {"MRR"};
    spec.retrieval.filter_seen = filter_seen;
    models::hstu::FakeRetrievalModel model(spec, torch::ones({2, 1}), rows);
    model.train();
    const Metrics metrics =
        evaluate_retrieval(model, dataset, samples, {.batch_size = 1, .max_batches = max_batches});
    EXPECT_TRUE(model.is_training());
    return metrics;
  }
};

TEST(EvaluateRetrieval, LeavesOutItemsSeenBeforeTheWindowToo) {
  // Target 3 (score 7) ranks behind items 1 and 2, both seen, item 1 before the window.
  EXPECT_DOUBLE_EQ(TwoUsers().evaluate(true)[0].second, (1.0 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(TwoUsers().evaluate(false)[0].second, (1.0 / 3 + 1.0) / 2);
}

TEST(EvaluateRetrieval, MaxBatchesLimitsTheUsers) {
  EXPECT_DOUBLE_EQ(TwoUsers().evaluate(false, 1)[0].second, 1.0 / 3);
}

TEST(EvaluateRetrieval, NoWindowsGiveNaN) {
  TwoUsers users;
  users.samples.clear();
  EXPECT_TRUE(std::isnan(users.evaluate(true)[0].second));
}

TEST(TargetCounts, TargetsAmongTheUsersEarlierEvents) {
  const MemoryDataset dataset({{.items = {1, 2, 3, 1}}, {.items = {1, 2, 3}}, {.items = {2, 2}}});
  // The first user saw the target before the window begins.
  const std::vector<data::Sample> samples = {{.user = 0, .begin = 2, .end = 4},
                                             {.user = 1, .begin = 0, .end = 3},
                                             {.user = 2, .begin = 0, .end = 2}};
  const TargetCounts counts = count_targets(dataset, samples);
  EXPECT_EQ(counts.targets, 3);
  EXPECT_EQ(counts.seen, 2);
  EXPECT_EQ(counts.text(false), "2 of 3 targets (66.7 %) are items that the user has had before");
  EXPECT_EQ(counts.text(true), counts.text(false) +
                                   "; filter_seen ranks these too, but `recommend` shows "
                                   "them only with --include-seen");
  EXPECT_EQ(count_targets(dataset, {}).text(true),
            "0 of 0 targets (0.0 %) are items that the user has had before");
}

}  // namespace
}  // namespace seqfuse::training::evaluation_retrieval_test
