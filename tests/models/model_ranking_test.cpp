// The ranking head: predicted positions, their labels, and invalid configurations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::model_ranking_test {
namespace {

std::shared_ptr<RankingModel> model_with(const config::Config& config,
                                         const data::Manifest& manifest = small_manifest()) {
  return make_ranking_model(ModelSpec::make(Task::ranking, config, manifest), 1, torch::kDouble);
}

data::Manifest class_manifest() {
  data::Manifest manifest = small_manifest();
  manifest.action_kind = data::ActionKind::classes;
  return manifest;
}

TEST(ModelRanking, PredictsTheCandidatesWindowByWindow) {
  config::Config config = small_config("hstu");
  config.dataset.max_num_candidates = 2;
  const auto model = model_with(config);
  EXPECT_EQ(model->spec().scaling_seqlen, 1 + 2 * (12 + 2));
  const data::Batch batch = random_batch({5, 3, 7}, 2);
  const RankingModel::Output output = model->forward(batch, {});
  EXPECT_EQ(output.logits.sizes(), (std::vector<int64_t>{6, 3}));
  for (int64_t row = 0; row < 6; ++row) {
    const int64_t event = batch.offsets[row / 2 + 1] - 2 + row % 2;
    EXPECT_EQ(output.windows[row].item<int64_t>(), row / 2);
    EXPECT_EQ(output.items[row].item<int64_t>(), batch.items[event]);
    for (int64_t task = 0; task < 3; ++task) {
      EXPECT_EQ(output.labels[row][task].item<double>(), batch.actions[event] >> task & 1);
    }
  }
  const torch::Tensor expected = at::softplus(output.logits) - output.logits * output.labels;
  EXPECT_LT((model->losses(output) - expected).abs().max().item<double>(), 1e-12);
}

// A candidate's prediction equals that for the same event as the next one.
TEST(ModelRanking, ACandidateIsPredictedLikeTheNextEvent) {
  config::Config config = small_config("hstu");
  config.network.disable_contextual_mask = true;
  const auto model = model_with(config);  // every event
  data::Batch batch = random_batch({7});
  const torch::Tensor all = model->forward(batch, {}).logits;
  batch.num_candidates = {1};
  const torch::Tensor last = model->forward(batch, {}).logits;
  ASSERT_EQ(last.size(0), 1);
  EXPECT_LT((last[0] - all[6]).abs().max().item<double>(), 1e-12);
}

TEST(ModelRanking, ClassesHaveCrossEntropy) {
  config::Config config = small_config("hstu");
  config.ranking.prediction_head_arch = {8};
  config.ranking.num_tasks = 1;
  const auto model = model_with(config, class_manifest());
  const RankingModel::Output output = model->forward(random_batch({6, 2}), {});
  EXPECT_EQ(output.labels.sizes(), (std::vector<int64_t>{8}));
  const torch::Tensor expected =
      -output.logits.log_softmax(1).gather(1, output.labels.unsqueeze(1));
  EXPECT_LT((model->losses(output) - expected).abs().max().item<double>(), 1e-12);
}

TEST(ModelRanking, AThresholdMakesClassesBinary) {
  config::Config config = small_config("hstu");
  config.ranking.prediction_head_arch = {4, 1};
  config.ranking.prediction_head_act_type = config::Activation::gelu;
  config.ranking.num_tasks = 1;
  config.ranking.label_threshold = 5;
  const auto model = model_with(config, class_manifest());
  const data::Batch batch = random_batch({9});
  const torch::Tensor labels = model->forward(batch, {}).labels;
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(labels[i][0].item<double>(), batch.actions[i] >= 5 ? 1 : 0);
  }
}

TEST(ModelRanking, NarrowRowsGoThroughAnMlp) {
  config::Config config = small_config("hstu");
  config.network.item_embedding_dim = 3;
  config.network.contextual_embedding_dim = 2;
  const auto model = model_with(config);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["tables.item"].size(1), 3);
  EXPECT_EQ(parameters["tables.action"].size(1), 3);
  EXPECT_EQ(parameters["tables.user_id"].size(1), 2);
  model->losses(model->forward(random_batch({6, 3}), {})).sum().backward();
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
  }
}

void expect_refused(const config::Config& config, const data::Manifest& manifest,
                    const std::string& part) {
  try {
    ModelSpec::make(Task::ranking, config, manifest);
    FAIL() << "accepted: " << part;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

TEST(ModelRanking, RefusesHeadsThatDoNotFitTheActions) {
  config::Config config = small_config("hstu");
  config.ranking.num_tasks = 1;
  config.ranking.prediction_head_arch = {16, 5};
  expect_refused(config, class_manifest(), "has 8 classes of actions");
  config.ranking.prediction_head_arch = {16, 1};
  expect_refused(config, class_manifest(), "label_threshold");
  config.ranking.num_tasks = 4;
  config.ranking.prediction_head_arch = {16, 4};
  expect_refused(config, small_manifest(), "have 3 bits");
  config.ranking.num_tasks = 2;
  expect_refused(config, small_manifest(), "must be equal");
  config.ranking.prediction_head_arch = {};
  expect_refused(config, small_manifest(), "prediction_head_arch is missing");
  data::Manifest manifest = small_manifest();
  manifest.action_kind = data::ActionKind::none;
  expect_refused(small_config("hstu"), manifest, "has no actions");
  expect_refused(small_config("hstu_research"), small_manifest(), "cannot rank");
}

}  // namespace
}  // namespace seqfuse::models::hstu::model_ranking_test
