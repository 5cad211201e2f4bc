#include "training/loop/batch_padding.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "models/hstu/task_model.h"
#include "models/hstu/windows.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::training::batch_padding_test {
namespace {

using models::hstu::Task;
using models::hstu::TaskModel;

models::hstu::ModelSpec spec_of(Task task, const std::string& architecture,
                                int64_t max_candidates = 0) {
  config::Config config = models::hstu::small_config(architecture);
  config.dataset.max_num_candidates = max_candidates;
  return models::hstu::ModelSpec::make(task, config, models::hstu::small_manifest());
}

// The lengths of this many windows.
std::vector<int64_t> random_lengths(Random& random, int64_t windows) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < windows; ++b) lengths.push_back(static_cast<int64_t>(random.below(13)));
  return lengths;
}

TEST(BatchPadding, TheFirstLossesAreThoseWithoutIt) {
  Random random(3);
  for (const auto& [task, architecture, candidates] :
       {std::tuple(Task::retrieval, "hstu_research", 0), std::tuple(Task::retrieval, "hstu", 0),
        std::tuple(Task::ranking, "hstu", 0), std::tuple(Task::ranking, "hstu", 3)}) {
    const models::hstu::ModelSpec spec = spec_of(task, architecture, candidates);
    const auto model = models::hstu::make_task_model(spec, 5);
    models::hstu::randomize(*model);
    for (int repeat = 0; repeat < 5; ++repeat) {
      SCOPED_TRACE(testing::Message() << architecture << ", " << candidates << " candidates");
      const data::Batch batch = models::hstu::random_batch(random_lengths(random, 40), candidates);
      const data::Batch padded = pad_batch(batch, spec);
      const int64_t positions = models::hstu::num_predicted(spec, batch);
      ASSERT_GT(positions, 0);
      EXPECT_GT(padded.batch_size(), batch.batch_size());
      const TaskModel::Loss expected = model->loss(batch, {.seed = 1});
      EXPECT_EQ(expected.positions, positions);
      const models::hstu::Windows windows =
          model->upload(padded, {.seeds = {}, .num_positions = {positions}});
      const TaskModel::Loss found = model->loss(windows, {.seed = 1}, windows.num_positions);
      EXPECT_NEAR(found.sum.item<double>(), expected.sum.item<double>(),
                  1e-5 * expected.sum.item<double>());
      // Gradients must match, too.
      expected.sum.backward();
      std::vector<torch::Tensor> gradients;
      for (auto& weight : model->parameters()) {
        gradients.push_back(weight.grad().clone());
        weight.mutable_grad() = torch::Tensor();
      }
      found.sum.backward();
      size_t i = 0;
      for (auto& weight : model->parameters()) {
        EXPECT_TRUE(torch::allclose(weight.grad(), gradients[i], 1e-4, 1e-4)) << "parameter " << i;
        weight.mutable_grad() = torch::Tensor();
        ++i;
      }
    }
  }
}

TEST(BatchPadding, BatchesOfAllLengthsHaveFewSizes) {
  Random random(4);
  const models::hstu::ModelSpec spec = spec_of(Task::retrieval, "hstu_research");
  std::set<std::vector<int64_t>> before, after;
  const auto model = models::hstu::make_task_model(spec, 5);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const data::Batch batch = models::hstu::random_batch(random_lengths(random, 40));
    const models::hstu::Windows windows = model->upload(pad_batch(batch, spec));
    before.insert(model->upload(batch).sizes());
    after.insert(windows.sizes());
    EXPECT_LE(windows.num_history, batch.num_events() * 17 / 16);
    EXPECT_LE(windows.max_history, 12);
  }
  EXPECT_GT(before.size(), 50U);
  // Around 200 events, on both sides of 256, and the longest of 11 or 12.
  EXPECT_LE(after.size(), 32U);
}

TEST(BatchPadding, BatchesOfTheLongestWindowsStayAsTheyAre) {
  const models::hstu::ModelSpec spec = spec_of(Task::ranking, "hstu", 2);
  const data::Batch batch = models::hstu::random_batch(std::vector<int64_t>(20, 14), 2);
  EXPECT_EQ(pad_batch(batch, spec).items, batch.items);
  std::vector<int64_t> lengths(20, 14);
  lengths[3] = 13;
  EXPECT_GT(pad_batch(models::hstu::random_batch(lengths, 2), spec).batch_size(), 20);
}

TEST(BatchPadding, BoundsOfLengthsAreRoundedUpToWhatTheModelTakes) {
  models::hstu::ModelSpec spec = spec_of(Task::ranking, "hstu", 50);
  spec.max_history = 1000;
  models::hstu::Windows windows;
  windows.max_history = 600;
  windows.max_candidates = 33;
  round_lengths(windows, spec);
  EXPECT_EQ(windows.max_history, 608);  // 512 / 16 apart
  EXPECT_EQ(windows.max_candidates, 34);
  windows.max_history = 999;
  windows.max_candidates = 50;
  round_lengths(windows, spec);
  EXPECT_EQ(windows.max_history, 1000);
  EXPECT_EQ(windows.max_candidates, 50);
}

TEST(BatchPadding, ABatchOfNothingCanBePadded) {
  const models::hstu::ModelSpec spec = spec_of(Task::retrieval, "hstu_research");
  const data::Batch padded = pad_batch(models::hstu::random_batch({0, 1, 0}), spec);
  EXPECT_EQ(padded.num_events(), 1);
  EXPECT_EQ(models::hstu::num_predicted(spec, models::hstu::random_batch({0, 1, 0})), 0);
}

}  // namespace
}  // namespace seqfuse::training::batch_padding_test
