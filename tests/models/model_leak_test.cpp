// Predictions do not depend on what is to be predicted.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/hstu/layer.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::model_leak_test {
namespace {

std::shared_ptr<RankingModel> ranking_model(int64_t candidates, int64_t group = 1) {
  config::Config config = small_config("hstu");
  config.dataset.max_num_candidates = candidates;
  config.network.target_group_size = group;
  auto model = make_ranking_model(ModelSpec::make(Task::ranking, config, small_manifest()), 1,
                                  torch::kDouble);
  randomize(*model);
  model->eval();
  return model;
}

torch::Tensor logits(RankingModel& model, const data::Batch& batch) {
  const torch::NoGradGuard no_grad;
  return model.forward(batch, {}).logits;
}

TEST(ModelLeak, ActionsOfCandidatesAreNeverSeen) {
  for (const int64_t group : {1, 2, 3}) {
    const auto model = ranking_model(3, group);
    data::Batch batch = random_batch({9, 5}, 3);
    const torch::Tensor before = logits(*model, batch);
    ASSERT_EQ(before.size(0), 6);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t i = batch.offsets[b + 1] - 3; i < batch.offsets[b + 1]; ++i) {
        batch.actions[i] = 7 - batch.actions[i];
      }
    }
    EXPECT_LT(largest_difference(logits(*model, batch), before), kMoreThanRounding)
        << "group " << group;
    // Control: an action of the history does change predictions.
    batch.actions[0] = 7 - batch.actions[0];
    EXPECT_GT(largest_difference(logits(*model, batch), before), kMoreThanRounding);
  }
}

TEST(ModelLeak, CandidatesOfOtherGroupsAreNotSeen) {
  data::Batch batch = random_batch({9}, 3);
  const auto alone = ranking_model(3, 1);
  const torch::Tensor before = logits(*alone, batch);
  batch.items[7] = batch.items[7] % 20 + 1;  // the second candidate
  const torch::Tensor after = logits(*alone, batch);
  EXPECT_LT(largest_difference(after[0], before[0]), kMoreThanRounding);
  EXPECT_GT(largest_difference(after[1], before[1]), kMoreThanRounding);
  EXPECT_LT(largest_difference(after[2], before[2]), kMoreThanRounding);

  const auto grouped = ranking_model(3, 3);
  const torch::Tensor causal = logits(*grouped, batch);
  batch.items[7] = batch.items[7] % 20 + 1;
  EXPECT_LT(largest_difference(logits(*grouped, batch)[0], causal[0]), kMoreThanRounding);
  EXPECT_GT(largest_difference(logits(*grouped, batch)[2], causal[2]), kMoreThanRounding);
}

TEST(ModelLeak, EveryEventIsPredictedFromItsPastAlone) {
  const auto model = ranking_model(0);
  data::Batch batch = random_batch({9, 5});
  const torch::Tensor before = logits(*model, batch);
  ASSERT_EQ(before.size(0), 14);
  batch.actions[4] =
      7 - batch.actions[4];  // neither its own prediction nor an earlier one may change
  const torch::Tensor after = logits(*model, batch);
  EXPECT_LT(largest_difference(after.slice(0, 0, 5), before.slice(0, 0, 5)), kMoreThanRounding);
  EXPECT_GT(largest_difference(after[5], before[5]), kMoreThanRounding);
  batch.items[6] = batch.items[6] % 20 + 1;
  EXPECT_LT(largest_difference(logits(*model, batch).slice(0, 0, 6), after.slice(0, 0, 6)),
            kMoreThanRounding);
}

TEST(ModelLeak, RetrievalStatesDoNotSeeLaterEvents) {
  for (const char* architecture : {"hstu", "hstu_research"}) {
    const auto model = make_retrieval_model(
        ModelSpec::make(Task::retrieval, small_config(architecture), small_manifest()), 1,
        torch::kDouble);
    randomize(*model);
    model->eval();
    const torch::NoGradGuard no_grad;
    const torch::Tensor negatives = torch::randint(1, 21, {8, 5}, torch::kInt);
    data::Batch batch = random_batch({9});
    const torch::Tensor before = model->losses(batch, {}, negatives);
    batch.items[5] = batch.items[5] % 20 + 1;  // the target of position 4, the input of position 5
    batch.actions[4] = 7 - batch.actions[4];   // comes after the item token of position 4
    const torch::Tensor after = model->losses(batch, {}, negatives);
    EXPECT_LT(largest_difference(after.slice(0, 0, 4), before.slice(0, 0, 4)), kMoreThanRounding)
        << architecture;
    EXPECT_GT(largest_difference(after[4], before[4]), kMoreThanRounding) << architecture;
  }
}

// Why the models force causal context: two layers with the contextual mask carry the future back.
TEST(ModelLeak, ContextualMaskOverTwoLayersWouldLeak) {
  ModelSpec spec;
  spec.network = small_config("hstu").network;
  spec.scaling_seqlen = 16;
  Initializer init(1, torch::kDouble);
  HstuLayer first(LayerOptions::of(spec), init), second(LayerOptions::of(spec), init);
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  const torch::Tensor x = torch::randn({8, 8}, torch::kDouble);
  torch::Tensor changed = x.clone();
  changed[6] = torch::randn({8}, torch::kDouble);  // layer norm would remove a constant
  Sequences sequences;
  sequences.offsets = torch::tensor({int64_t{0}, int64_t{8}});
  const auto at_three = [&](const torch::Tensor& input) {
    return second.forward(first.forward(input, sequences, 0), sequences, 0)[3];
  };
  EXPECT_LT(largest_difference(at_three(x), at_three(changed)), kMoreThanRounding);
  sequences.num_contexts = torch::tensor({int64_t{1}});
  EXPECT_GT(largest_difference(at_three(x), at_three(changed)), kMoreThanRounding);
}

}  // namespace
}  // namespace seqfuse::models::hstu::model_leak_test
