// Models over sharded tables against the same models with replicated ones.
#include <gtest/gtest.h>

#include "embeddings/shard_plan.h"
#include "models/hstu/ranking_model.h"
#include "models/hstu/retrieval_model.h"
#include "models/hstu/table_placement.h"
#include "models/hstu/tables.h"
#include "tests/distributed/processes.h"
#include "tests/models/model_fixtures.h"

namespace seqfuse::models::hstu::sharded_model_test {
namespace {

using distributed::in_processes;
using distributed::ProcessGroup;

embeddings::Placement all_sharded(ProcessGroup& group) {
  embeddings::Placement placement{.group = &group, .sharding_types = {}};
  for (const char* table : {"item", "action", "user_id"}) {
    placement.sharding_types[table] = config::Sharding::model_parallel;
  }
  return placement;
}

// Each table's gradient equals the replicated table's, summed over the processes.
void expect_same_gradients(const Model& sharded, const Model& whole, ProcessGroup& group) {
  const embeddings::Tables shards = sharded.tables(), tables = whole.tables();
  ASSERT_EQ(shards.size(), 3U);
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i]->return_gradients();
    const at::Tensor sum = tables[i]->weight().grad().clone();
    group.all_reduce(sum, "gradients")();
    const at::Tensor own = embeddings::ids_of(group.rank(), group.size(), tables[i]->num_rows());
    EXPECT_TRUE(shards[i]->is_sharded());
    EXPECT_FALSE(tables[i]->is_sharded());
    EXPECT_GT(sum.abs().max().item<double>(), 0);
    EXPECT_TRUE(at::allclose(shards[i]->weight().grad(), sum.index_select(0, own), 1e-9, 1e-12))
        << tables[i]->name();
  }
}

TEST(ShardedModelDeathTest, SampledNegativesGiveTheLossAndGradientsOfWholeTables) {
  in_processes(2, [](ProcessGroup& group) {
    const ModelSpec spec = ModelSpec::make(Task::retrieval, small_config("hstu"), small_manifest());
    const auto sharded = make_retrieval_model(spec, 1, torch::kDouble, all_sharded(group)),
               whole = make_retrieval_model(spec, 1, torch::kDouble);
    const auto rank = static_cast<uint64_t>(group.rank());
    const data::Batch batch = random_batch({7, 3}, 0, 5 + rank);
    torch::manual_seed(rank);
    const torch::Tensor negatives = torch::randint(1, 21, {8, 5}, torch::kInt);
    const torch::Tensor loss = sharded->losses(batch, {}, negatives),
                        expected = whole->losses(batch, {}, negatives);
    loss.sum().backward();
    expected.sum().backward();
    EXPECT_TRUE(at::allclose(loss, expected, 1e-9, 1e-12));
    expect_same_gradients(*sharded, *whole, group);
    EXPECT_TRUE(at::allclose(sharded->item_rows(), whole->item_rows()));
    EXPECT_TRUE(at::allclose(sharded->query(batch), whole->query(batch)));
  });
}

TEST(ShardedModelDeathTest, RankingHasTheLogitsAndGradientsOfWholeTables) {
  in_processes(2, [](ProcessGroup& group) {
    const ModelSpec spec = ModelSpec::make(Task::ranking, small_config("hstu"), small_manifest());
    const auto sharded = make_ranking_model(spec, 1, torch::kDouble, all_sharded(group)),
               whole = make_ranking_model(spec, 1, torch::kDouble);
    const data::Batch batch = random_batch({6, 9, 2}, 0, 5 + group.rank());
    const auto output = sharded->forward(batch, {}), expected = whole->forward(batch, {});
    sharded->losses(output).sum().backward();
    whole->losses(expected).sum().backward();
    EXPECT_TRUE(at::allclose(output.logits, expected.logits, 1e-9, 1e-12));
    expect_same_gradients(*sharded, *whole, group);
  });
}

TEST(TablePlacement, ComesFromShardingTypesByFeature) {
  config::Config config = small_config("hstu");
  const ModelSpec spec = ModelSpec::make(Task::retrieval, config, small_manifest());
  ProcessGroup group;
  EXPECT_TRUE(table_placement(config, spec, group).sharding_types.empty());

  config::EmbeddingArgs item;
  item.feature_names = {"user_id", "item"};
  item.table_name = "ids";
  item.sharding_type = config::Sharding::data_parallel;
  config::DynamicEmbeddingArgs action;
  action.feature_names = {"action"};
  config.embeddings = {item};
  config.dynamic_embeddings = {action};
  const embeddings::Placement placement = table_placement(config, spec, group);
  EXPECT_EQ(placement.sharding_types,
            (std::map<std::string, config::Sharding>{{"user_id", config::Sharding::data_parallel},
                                                     {"item", config::Sharding::data_parallel}}));
  EXPECT_NE(placement.dynamic_of("action"), nullptr);
  EXPECT_EQ(placement.dynamic_of("item"), nullptr);
}

TEST(TablePlacement, ASoftmaxOverTheCatalogueKeepsItemsWholeUnlessAskedOtherwise) {
  config::Config config = small_config("hstu");
  config.retrieval.negatives = config::Negatives::full;
  const ModelSpec spec = ModelSpec::make(Task::retrieval, config, small_manifest());
  ProcessGroup group;
  EXPECT_EQ(table_placement(config, spec, group).sharding_types.at("item"),
            config::Sharding::data_parallel);
  config::EmbeddingArgs item;
  item.feature_names = {"item"};
  config.embeddings = {item};  // by_size
  EXPECT_EQ(table_placement(config, spec, group).sharding_types.at("item"),
            config::Sharding::data_parallel);
  config.embeddings[0].sharding_type = config::Sharding::model_parallel;
  EXPECT_EQ(table_placement(config, spec, group).sharding_types.at("item"),
            config::Sharding::model_parallel);
}

}  // namespace
}  // namespace seqfuse::models::hstu::sharded_model_test
