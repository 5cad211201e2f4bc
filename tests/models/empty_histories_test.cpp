// Batches of 10,000 users without any history: training, evaluation, and their messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <vector>

#include "base/log.h"
#include "models/hstu/task_model.h"
#include "tests/models/model_fixtures.h"
#include "tests/models/outside_signal.h"
#include "tests/temporary_directory.h"
#include "training/loop/trainer.h"

namespace seqfuse::training::empty_histories_test {
namespace {

using models::hstu::Task;
using models::hstu::TaskModel;
using nlohmann::json;

constexpr int64_t kUsers = 10'000;

class EmptyHistories : public testing::TestWithParam<std::pair<Task, const char*>> {
 protected:
  EmptyHistories() {
    log::set_level(log::Level::quiet);
    config_ = models::hstu::small_config(architecture());
    config_.trainer.train_batch_size = config_.trainer.eval_batch_size = kUsers;
    config_.trainer.max_train_iters = 3;
    config_.trainer.log_interval = 1;
    config_.trainer.eval_interval = 0;
    config_.retrieval.negatives = config::Negatives::full;
    config_.retrieval.eval_metrics = {"HR@1", "MRR"};
    config_.ranking.prediction_head_arch = {6, 1};
    config_.ranking.num_tasks = 1;
    config_.ranking.label_threshold = 1;
    config_.ranking.eval_metrics = {metrics::RankingMetric::auc, metrics::RankingMetric::ne};
    config_.dataset.max_num_candidates = task() == Task::ranking ? 1 : 0;
  }
  ~EmptyHistories() override { log::set_level(log::Level::info); }

  static Task task() { return GetParam().first; }
  static const char* architecture() { return GetParam().second; }

  // Users with these numbers of events, in turn.
  static data::MemoryDataset dataset(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> all;
    for (int64_t u = 0; u < kUsers; ++u) all.push_back(lengths[u % lengths.size()]);
    return data::MemoryDataset::of_lengths(all);
  }

  std::shared_ptr<TaskModel> make_model(const data::Dataset& dataset) const {
    return models::hstu::make_task_model(
        models::hstu::ModelSpec::make(task(), config_, dataset.manifest()), 1);
  }

  TrainResult train(const data::Dataset& dataset, const data::Split& split, TaskModel& model) {
    RunDirectory run = RunDirectory::create(directory_.path() / "run", {}, "", true);
    return unless_stopped_from_outside(Trainer(model, dataset, split, config_).run(run, false));
  }

  std::vector<json> lines() const {
    std::ifstream file(directory_.path() / "run/metrics.jsonl");
    std::vector<json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  TemporaryDirectory directory_;
  config::Config config_;
};

TEST_P(EmptyHistories, WithNothingToPredictChangeNothing) {
  const auto users = dataset({0, 0, 0, 3});
  data::Split split;
  for (int64_t u = 0; u < kUsers; ++u) split.train.push_back({.user = u});
  const auto model = make_model(users);
  std::vector<torch::Tensor> before;
  for (const auto& parameter : model->parameters()) before.push_back(parameter.clone());
  const TrainResult result = train(users, split, *model);
  EXPECT_EQ(result.step, 3);
  EXPECT_TRUE(result.metrics.empty());
  const auto after = model->parameters();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i]));
  // A step without positions has no loss, and logs none.
  ASSERT_EQ(lines().size(), 3U);
  for (const json& line : lines()) EXPECT_FALSE(line.contains("loss")) << line.dump();
}

TEST_P(EmptyHistories, AreTrainedOnAndEvaluated) {
  // One event each: the target, with nothing before it. Retrieval learns from pairs of events,
  // which every hundredth user has.
  std::vector<int64_t> lengths(100, 1);
  lengths.back() = 4;
  const auto users = dataset(lengths);
  data::Split split;
  for (int64_t u = 0; u < kUsers; ++u) {
    const int64_t end = lengths[u % 100];
    split.train.push_back({.user = u, .end = end, .num_candidates = task() == Task::ranking});
    split.test.push_back({.user = u, .end = 1, .num_candidates = 1});
  }
  const auto model = make_model(users);
  const TrainResult result = train(users, split, *model);
  EXPECT_EQ(result.step, 3);
  ASSERT_EQ(result.metrics.size(), 2U);
  for (const auto& [name, value] : result.metrics) EXPECT_FALSE(std::isinf(value)) << name;
  ASSERT_EQ(lines().size(), 4U);
  const double first = lines()[0].at("loss"), last = lines()[2].at("loss");
  EXPECT_TRUE(std::isfinite(first));
  EXPECT_LT(last, first);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
  }
}

TEST_P(EmptyHistories, DoNotChangeTheLossOfOtherUsers) {
  const auto users = dataset({4});
  const auto model = make_model(users);
  data::Split split;
  std::vector<data::Sample> samples = {
      {.user = 0, .end = 4, .num_candidates = task() == Task::ranking}};
  const data::Batch alone = data::make_batch(users, samples.data(), 1, 0);
  for (int64_t u = 1; u < kUsers; ++u) samples.push_back({.user = u});
  const data::Batch crowd = data::make_batch(users, samples.data(), kUsers, 0);
  const TaskModel::Loss expected = model->loss(alone, {}), found = model->loss(crowd, {});
  EXPECT_EQ(found.positions, expected.positions);
  EXPECT_GT(found.positions, 0);
  EXPECT_NEAR(found.sum.item<double>(), expected.sum.item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, EmptyHistories,
                         testing::Values(std::pair(Task::ranking, "hstu"),
                                         std::pair(Task::retrieval, "hstu"),
                                         std::pair(Task::retrieval, "hstu_research")),
                         [](const auto& test) {
                           return std::string(test.param.second) +
                                  (test.param.first == Task::ranking ? "_ranking" : "_retrieval");
                         });

}  // namespace
}  // namespace seqfuse::training::empty_histories_test
