// Retrieval losses: negatives, seeds, shapes, and invalid configurations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "models/hstu/tables.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::model_retrieval_test {
namespace {

std::shared_ptr<RetrievalModel> model_with(const config::Config& config) {
  return make_retrieval_model(ModelSpec::make(Task::retrieval, config, small_manifest()), 1,
                              torch::kDouble);
}

TEST(ModelRetrieval, FullLossIsTheLossAgainstAllOtherItems) {
  config::Config config = small_config("hstu");
  config.retrieval.negatives = config::Negatives::full;
  const auto model = model_with(config);
  model->eval();
  const data::Batch batch = random_batch({6, 4});
  const torch::Tensor all = torch::arange(1, 21, torch::kInt).expand({8, 20}).contiguous();
  // The target among the negatives is masked, so all items as negatives is the full softmax.
  const torch::Tensor full = model->losses(batch, {}), sampled = model->losses(batch, {}, all);
  EXPECT_LT((full - sampled).abs().max().item<double>(), 1e-10);
}

TEST(ModelRetrieval, NegativesFollowTheSeedAndTheStep) {
  for (const char* kind : {"uniform", "in_batch"}) {
    config::Config config = small_config("hstu");
    config.retrieval.negatives = config::find_choice<config::Negatives>(kind).value();
    const auto model = model_with(config);
    model->eval();
    const data::Batch batch = random_batch({9, 8});
    const torch::Tensor first = model->losses(batch, {.seed = 1, .step = 0});
    EXPECT_EQ(first.size(0), 15);
    EXPECT_TRUE(first.equal(model->losses(batch, {.seed = 1, .step = 0}))) << kind;
    EXPECT_FALSE(first.equal(model->losses(batch, {.seed = 1, .step = 1}))) << kind;
    EXPECT_FALSE(first.equal(model->losses(batch, {.seed = 2, .step = 0}))) << kind;
  }
}

TEST(ModelRetrieval, InBatchNegativesAreItemsOfTheBatch) {
  config::Config config = small_config("hstu");
  config.retrieval.negatives = config::Negatives::in_batch;
  config.retrieval.num_negatives = -1;
  const auto model = model_with(config);
  data::Batch batch = random_batch({5});
  batch.items = {1, 2, 2, 2, 2};
  // The only item to draw is the target itself, which is masked: nothing competes with it.
  EXPECT_LT(model->losses(batch, {}).abs().max().item<double>(), 1e-12);
}

TEST(ModelRetrieval, WindowsWithoutASuccessorGiveNoPosition) {
  const auto model = model_with(small_config("hstu"));
  EXPECT_EQ(model->losses(random_batch({1, 0}), {}).size(0), 0);
  const torch::Tensor query = model->query(random_batch({1, 4, 0}, 1));
  EXPECT_EQ(query.sizes(), (std::vector<int64_t>{3, 8}));
  EXPECT_EQ(query[0].abs().sum().item<double>(), 0);
  EXPECT_NEAR(query[1].norm().item<double>(), 1, 1e-9);
}

TEST(ModelRetrieval, ItemRowsHaveUnitNorm) {
  const auto model = model_with(small_config("hstu"));
  const torch::Tensor rows = model->item_rows();
  ASSERT_EQ(rows.size(0), 21);
  EXPECT_LT((rows.norm(2, 1) - 1).abs().max().item<double>(), 1e-9);
}

TEST(ModelRetrieval, TheSameSeedGivesTheSameWeights) {
  const ModelSpec spec = ModelSpec::make(Task::retrieval, small_config("hstu"), small_manifest());
  const auto parameters = [&](uint64_t seed) {
    return make_retrieval_model(spec, seed)->parameters();
  };
  const auto first = parameters(1), again = parameters(1), other = parameters(2);
  bool differs = false;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i].equal(again[i]));
    differs |= !first[i].equal(other[i]);
  }
  EXPECT_TRUE(differs);
}

// A table above the threshold has sparse gradients, on another path through the loss.
TEST(ModelRetrieval, LargeTablesGiveTheSameLossAndGradientAsSmallOnes) {
  data::Manifest manifest = small_manifest();
  const config::Config config = small_config("hstu");
  const auto small =
      make_retrieval_model(ModelSpec::make(Task::retrieval, config, manifest), 1, torch::kDouble);
  manifest.num_items = embeddings::kSparseTableRows;
  const auto large =
      make_retrieval_model(ModelSpec::make(Task::retrieval, config, manifest), 1, torch::kDouble);
  {
    const torch::NoGradGuard no_grad;
    const auto from = small->named_parameters();
    for (auto& parameter : large->named_parameters()) {
      const torch::Tensor& source = from[parameter.key()];
      parameter.value().narrow(0, 0, source.size(0)).copy_(source);
    }
  }
  const data::Batch batch = random_batch({7, 3});
  const torch::Tensor negatives = torch::randint(1, 21, {8, 5}, torch::kInt);
  const torch::Tensor small_loss = small->losses(batch, {}, negatives),
                      large_loss = large->losses(batch, {}, negatives);
  EXPECT_LT((small_loss - large_loss).abs().max().item<double>(), 1e-12);
  small_loss.sum().backward();
  large_loss.sum().backward();
  const torch::Tensor dense = small->named_parameters()["tables.item"].grad();
  const torch::Tensor sparse = large->named_parameters()["tables.item"].grad();
  ASSERT_TRUE(sparse.is_sparse());
  EXPECT_LT((sparse.coalesce().to_dense().narrow(0, 0, 21) - dense).abs().max().item<double>(),
            1e-12);
}

TEST(ModelRetrieval, TokensAreThePositionsOfTheInput) {
  const auto tokens = [](const char* architecture) {
    return num_tokens(
        ModelSpec::make(Task::retrieval, small_config(architecture), small_manifest()),
        random_batch({6, 1, 0}));
  };
  EXPECT_EQ(tokens("hstu_research"), 5);
  EXPECT_EQ(tokens("hstu"), 3 + 2 * 5);
}

void expect_refused(const config::Config& config, const data::Manifest& manifest,
                    const std::string& part) {
  try {
    ModelSpec::make(Task::retrieval, config, manifest);
    FAIL() << "accepted: " << part;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

TEST(ModelRetrieval, RefusesWhatItCannotTrain) {
  config::Config config = small_config("hstu");
  config.network.is_causal = false;
  expect_refused(config, small_manifest(), "is_causal");
  config = small_config("hstu");
  config.dataset.max_num_candidates = 3;
  expect_refused(config, small_manifest(), "max_num_candidates");
  config = small_config("hstu");
  config.network.item_embedding_dim = 4;
  expect_refused(config, small_manifest(), "item_embedding_dim");
  config = small_config("hstu");
  config.retrieval.num_negatives = 0;
  expect_refused(config, small_manifest(), "num_negatives");
  config = small_config("hstu_research");
  config.network.scaling_seqlen = 5;
  expect_refused(config, small_manifest(), "scaling_seqlen");
  data::Manifest manifest = small_manifest();
  manifest.has_timestamps = false;
  expect_refused(small_config("hstu_research"), manifest, "timestamps");
}

}  // namespace
}  // namespace seqfuse::models::hstu::model_retrieval_test
