// Properties that hold for every shipped configuration, and the committed reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/load.h"
#include "config/reference.h"
#include "tests/paths.h"

namespace seqfuse::config::config_files_test {
namespace {
namespace fs = std::filesystem;

// All files but those that others include.
std::vector<std::string> shipped_configs() {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(test::source_directory() + "/configs")) {
    if (entry.path().extension() == ".gin" && entry.path().stem() != "hstu_research") {
      files.push_back(entry.path().stem());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string path_of(const std::string& name) {
  return test::source_directory() + "/configs/" + name + ".gin";
}

class ShippedConfig : public testing::TestWithParam<std::string> {};

TEST_P(ShippedConfig, OperativeConfigLoadsBackToTheSame) {
  const LoadedConfig loaded = load_config(path_of(GetParam()), {});
  const LoadedConfig again = load_config_text("operative_config.gin", loaded.operative);
  EXPECT_EQ(again.config, loaded.config) << loaded.operative;
  EXPECT_EQ(again.operative, loaded.operative);
  EXPECT_EQ(again.ranking_bound, loaded.ranking_bound);
}

TEST_P(ShippedConfig, OverridesReachTheOperativeConfig) {
  const LoadedConfig loaded = load_config(
      path_of(GetParam()), {"TrainerArgs.seed=77", "TrainerArgs.ckpt_load_dir='a\\'b'"});
  EXPECT_EQ(loaded.config.trainer.seed, 77);
  EXPECT_EQ(load_config_text("o", loaded.operative).config, loaded.config);
  EXPECT_THAT(loaded.operative, testing::HasSubstr("TrainerArgs.seed = 77\n"));
}

TEST_P(ShippedConfig, ServesTheTaskOfItsName) {
  const bool ranking = load_config(path_of(GetParam()), {}).ranking_bound;
  EXPECT_EQ(ranking, GetParam().ends_with("_ranking"));
}

INSTANTIATE_TEST_SUITE_P(Configs, ShippedConfig, testing::ValuesIn(shipped_configs()),
                         [](const auto& config) { return config.param; });

TEST(ShippedConfigs, AllAreThere) {
  EXPECT_THAT(shipped_configs(),
              testing::IsSupersetOf(
                  {"benchmark_ranking", "demo", "kuairand_1k_ranking", "kuairand_27k_ranking",
                   "kuairand_pure_ranking", "kuairand_synthetic_ranking", "ml_1m_best",
                   "ml_1m_hstu", "ml_1m_hstu_large", "ml_20m_hstu", "ml_20m_hstu_large",
                   "ml_latest_small_ranking", "movielen_ranking", "movielen_retrieval"}));
}

TEST(ShippedConfigs, PublishedSizes) {
  const Config base = load_config(path_of("ml_1m_hstu"), {}).config;
  EXPECT_EQ(base.network.hidden_size, 50);
  EXPECT_EQ(base.trainer.num_epochs, 101);
  EXPECT_EQ(base.network.scaling_seqlen, 211);
  EXPECT_EQ(base.optimizer.adam_beta2, 0.98);
  const Config large = load_config(path_of("ml_20m_hstu_large"), {}).config;
  EXPECT_EQ(large.network.num_layers, 16);
  EXPECT_EQ(large.network.kv_channels * large.network.num_attention_heads, 256);
}

TEST(OperativeConfig, TablesWithAwkwardNamesLoadBack) {
  const LoadedConfig loaded = load_config(
      path_of("benchmark_ranking"),
      {"BenchmarkDatasetArgs.contextual_feature_names=['a b', 'c']",
       "ctx/FeatureArgs.feature_names=['a b', 'c']\nctx/FeatureArgs.max_sequence_length=1\n"
       "one/EmbeddingArgs.table_name='a-b'\none/EmbeddingArgs.feature_names=['a b']\n"
       "two/EmbeddingArgs.table_name='a_b'\ntwo/EmbeddingArgs.feature_names=['c']\n"
       "EmbeddingArgs.item_vocab_size_or_capacity=3\n"
       "BenchmarkDatasetArgs.feature_args=[@event/FeatureArgs(), @ctx/FeatureArgs()]\n"
       "BenchmarkDatasetArgs.embedding_args=[@item/DynamicEmbeddingArgs(), "
       "@action/EmbeddingArgs(), @two/EmbeddingArgs(), @one/EmbeddingArgs()]"});
  ASSERT_EQ(loaded.config.embeddings.size(), 3U);
  const LoadedConfig again = load_config_text("operative_config.gin", loaded.operative);
  EXPECT_EQ(again.config, loaded.config) << loaded.operative;
  EXPECT_EQ(again.operative, loaded.operative);
}

TEST(ConfigReference, CommittedFileIsUpToDate) {
  const std::string file = test::source_directory() + "/docs/config.md";
  if (std::getenv("SEQFUSE_UPDATE_DOCS") != nullptr) {
    write_file_atomically(file, config_reference());
  }
  EXPECT_EQ(read_file(file), config_reference())
      << "run unit_tests --gtest_filter='ConfigReference.*' with SEQFUSE_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace seqfuse::config::config_files_test
