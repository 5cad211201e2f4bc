#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/minimal_config.h"
#include "tests/temporary_directory.h"

namespace seqfuse::config::config_load_test {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Config load(const std::string& lines, const std::vector<std::string>& overrides = {}) {
  return load_config_text("t.gin", kMinimalConfig + lines, overrides).config;
}

TEST(ConfigLoad, DefaultsAndValues) {
  const Config config = load("TrainerArgs.max_eval_iters = None\nNetworkArgs.hidden_dropout = 0\n");
  EXPECT_EQ(config.trainer.train_batch_size, 4);
  EXPECT_EQ(config.trainer.max_eval_iters, std::nullopt);
  EXPECT_EQ(config.network.hidden_dropout, 0.0) << "an integer serves as a number";
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config.trainer.seed, TrainerArgs().seed);
  EXPECT_EQ(config.dataset.dataset_path, "");
  EXPECT_EQ(load("DatasetArgs.dataset_path = None").dataset.dataset_path, "");
  EXPECT_FALSE(config.benchmark_dataset);
}

TEST(ConfigLoad, ChoicesAreSavedByNameAndAnOpenOneAsAnEmptyString) {
  const auto saved = [](const std::string& lines) {
    return load_config_text("t.gin", kMinimalConfig + lines).operative;
  };
  for (const char* open : {"", "OptimizerArgs.embedding_optimizer_str = None",
                           "OptimizerArgs.embedding_optimizer_str = ''"}) {
    EXPECT_EQ(load(open).optimizer.embedding_optimizer_str, std::nullopt) << open;
    EXPECT_THAT(saved(open), HasSubstr("OptimizerArgs.embedding_optimizer_str = ''\n")) << open;
  }
  const std::string adagrad = "OptimizerArgs.embedding_optimizer_str = 'row_wise_adagrad'\n";
  EXPECT_EQ(load(adagrad).optimizer.embedding_optimizer_str, OptimizerKind::row_wise_adagrad);
  EXPECT_THAT(saved(adagrad), HasSubstr(adagrad));
  EXPECT_THAT(saved(adagrad), HasSubstr("OptimizerArgs.optimizer_str = 'adam'\n"));

  const std::string table =
      "t/DynamicEmbeddingArgs.feature_names = ['item']\nt/DynamicEmbeddingArgs.table_name = 't'\n"
      "t/DynamicEmbeddingArgs.item_vocab_size_or_capacity = 9\n";
  const std::string chosen =
      "t/DynamicEmbeddingArgs.evict_strategy = 'lfu'\nt/DynamicEmbeddingArgs.caching = False\n"
      "t/DynamicEmbeddingArgs.dist_type = 'continuous'\n";
  EXPECT_THAT(saved(table + chosen), HasSubstr(chosen));
  EXPECT_THAT(saved(table), HasSubstr("t/DynamicEmbeddingArgs.sharding_type = 'model_parallel'\n"));
  EXPECT_THAT(saved(table), HasSubstr("t/DynamicEmbeddingArgs.dist_type = 'hash_roundrobin'\n"));
  EXPECT_THAT(
      saved("RankingArgs.prediction_head_arch = [1]\nRankingArgs.eval_metrics = ['NE', 'AUC']"),
      HasSubstr("RankingArgs.eval_metrics = ['NE', 'AUC']\n"));
}

TEST(ConfigLoad, LastBindingWinsAndMacrosAreLate) {
  EXPECT_EQ(load("TrainerArgs.seed = 1\nTrainerArgs.seed = 2").trainer.seed, 2);
  EXPECT_EQ(load("NetworkArgs.hidden_size = %W\nW = %m.V\nV = 12\nV = 16").network.hidden_size, 16);
  EXPECT_EQ(load("utils.args.TrainerArgs.seed = 3\nimport utils.args\n").trainer.seed, 3);
  EXPECT_THAT(
      load("N = 'NDCG@10'\nRetrievalArgs.eval_metrics = ('MRR', %N)").retrieval.eval_metrics,
      ElementsAre("MRR", "NDCG@10"));
}

TEST(ConfigLoad, Overrides) {
  const Config config = load("TrainerArgs.seed = 1\nS = 5\nTrainerArgs.log_interval = %S",
                             {"TrainerArgs.seed=7", "S=9", "TrainerArgs.seed = 8"});
  EXPECT_EQ(config.trainer.seed, 8);
  EXPECT_EQ(config.trainer.log_interval, 9);
  EXPECT_EQ(error_of("", {"TrainerArgs.seed=1", "TrainerArgs.sed=1"}),
            "--gin #2:1:13: unknown parameter TrainerArgs.sed (did you mean 'seed'?)");
  EXPECT_EQ(error_of("", {"DatasetArgs.dataset_name=ml-1m"}),
            "--gin #1:1:26: expected a value (a string needs quotes), got the name ml");
}

TEST(ConfigLoad, UnknownNames) {
  EXPECT_EQ(error_of("TrainerArgs.train_batchsize = 5"),
            "t.gin:11:13: unknown parameter TrainerArgs.train_batchsize (did you mean "
            "'train_batch_size'?)");
  EXPECT_EQ(error_of("  m.TrainrArgs.seed = 5"),
            "t.gin:11:5: unknown class TrainrArgs (did you mean 'TrainerArgs'?)");
  EXPECT_EQ(error_of("TrainerArgs.seed = %SED\nSEED = 1"),
            "t.gin:11:20: unknown macro %SED (did you mean 'SEED'?)");
  EXPECT_EQ(error_of("a/TrainerArgs.seed = 5"),
            "t.gin:11:3: TrainerArgs takes no scope: write TrainerArgs.seed without 'a/'");
  EXPECT_EQ(error_of("DatasetArgs.max_sequence_length = 5"),
            "t.gin:11:13: unknown parameter DatasetArgs.max_sequence_length (use "
            "max_history_seqlen)");
  EXPECT_EQ(error_of("Xyzzy.a = 5"), "t.gin:11:1: unknown class Xyzzy");
  EXPECT_EQ(error_of("DataArgs.shuffle = True"),
            "t.gin:11:1: unknown class DataArgs (did you mean 'DatasetArgs'?)");
  EXPECT_EQ(error_of("m.TrainingArgs:\n  seed = 1"),
            "t.gin:11:3: unknown class TrainingArgs (did you mean 'TrainerArgs'?)");
}

TEST(ConfigLoad, WrongTypes) {
  EXPECT_EQ(error_of("TrainerArgs.seed = '5'"),
            "t.gin:11:20: TrainerArgs.seed: expected an integer, got the string '5'");
  EXPECT_EQ(error_of("TrainerArgs.seed = 1e6"),
            "t.gin:11:20: TrainerArgs.seed: expected an integer, got the number 1000000.0; write "
            "1000000");
  EXPECT_EQ(error_of("TrainerArgs.seed = True"),
            "t.gin:11:20: TrainerArgs.seed: expected an integer, got True");
  EXPECT_EQ(error_of("TrainerArgs.seed = None"),
            "t.gin:11:20: TrainerArgs.seed: expected an integer, got None");
  EXPECT_EQ(error_of("TrainerArgs.profile = 1"),
            "t.gin:11:23: TrainerArgs.profile: expected True or False, got the integer 1");
  EXPECT_EQ(error_of("NetworkArgs.hidden_dropout = [0.1]"),
            "t.gin:11:30: NetworkArgs.hidden_dropout: expected a number, got a list of 1");
  EXPECT_EQ(error_of("DatasetArgs.split = 3"),
            "t.gin:11:21: DatasetArgs.split: expected a string, got the integer 3");
  EXPECT_EQ(error_of("RetrievalArgs.eval_metrics = ('MRR')"),
            "t.gin:11:31: RetrievalArgs.eval_metrics: expected a list, got the string 'MRR'; write "
            "['MRR']");
  EXPECT_EQ(error_of("RetrievalArgs.eval_metrics = [\n  'MRR',\n  10,\n]"),
            "t.gin:13:3: RetrievalArgs.eval_metrics: expected a string, got the integer 10");
  EXPECT_EQ(error_of("DatasetArgs.split = {'a': 1}"),
            "t.gin:11:21: DatasetArgs.split: expected a string, got a dict of 1");
}

TEST(ConfigLoad, MissingParametersAreListedTogether) {
  try {
    load_config_text("t.gin", "RankingArgs.num_tasks = 1\nitem/EmbeddingArgs.table_name = 'item'");
    FAIL() << "loaded without required parameters";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, HasSubstr("t.gin: required parameters are not bound:"));
    for (const char* name :
         {"TrainerArgs.train_batch_size", "TrainerArgs.eval_batch_size", "DatasetArgs.dataset_name",
          "DatasetArgs.max_history_seqlen", "NetworkArgs.num_layers", "NetworkArgs.hidden_size",
          "NetworkArgs.num_attention_heads", "NetworkArgs.kv_channels",
          "OptimizerArgs.optimizer_str", "OptimizerArgs.learning_rate",
          "RankingArgs.prediction_head_arch", "item/EmbeddingArgs.feature_names",
          "item/EmbeddingArgs.item_vocab_size_or_capacity"}) {
      EXPECT_THAT(message, HasSubstr(std::string("\n  ") + name + "  ("));
    }
    EXPECT_THAT(message, testing::Not(HasSubstr("table_name")));
  }
  EXPECT_THROW(load_config("", {}), UsageError);
}

TEST(ConfigLoad, AVerbNeedsTheClassesOfItsRootAlone) {
  const std::string lines =
      "TrainerArgs.eval_batch_size = 3\n"
      "DatasetArgs.dataset_name = 'ml-1m'\nDatasetArgs.max_history_seqlen = 20\n";
  const auto loaded = load_config_text<EvaluateConfig>("t.gin", lines);
  EXPECT_EQ(loaded.config.trainer.eval_batch_size, 3);
  EXPECT_EQ(loaded.config.dataset.max_history_seqlen, 20);
  EXPECT_THAT(loaded.operative, HasSubstr("TrainerArgs.eval_batch_size = 3"));
  EXPECT_THAT(loaded.operative, testing::Not(HasSubstr("NetworkArgs")));
  EXPECT_EQ(load_config_text<EvaluateConfig>("o", loaded.operative).config, loaded.config);
  EXPECT_THROW(load_config_text("t.gin", lines), UsageError) << "train needs more";
  // Other parameters may be present; only their names are checked.
  const auto trained = load_config_text<EvaluateConfig>(
      "t.gin", lines + "TrainerArgs.train_batch_size = 0\nTrainerArgs.log_interval = 5\n");
  EXPECT_EQ(trained.config, loaded.config);
  EXPECT_THROW(load_config_text<EvaluateConfig>("t.gin", lines + "TrainerArgs.log = 5\n"),
               UsageError);
  EXPECT_THROW(load_config_text<EvaluateConfig>("t.gin", lines + "TrainerArgs.eval_batch_size = 0"),
               UsageError);
  const auto whole = load_config_text<EvaluateConfig>(
      "t.gin", lines + "OptimizerArgs.learning_rate = 1e-3\nitem/EmbeddingArgs.table_name = 'x'\n");
  EXPECT_EQ(whole.config, loaded.config);
  EXPECT_THROW(load_config_text<EvaluateConfig>("t.gin", lines + "NetworkArgs.num_layer = 1\n"),
               UsageError);
  try {
    load_config_text<EvaluateConfig>("t.gin", "DatasetArgs.dataset_name = 'ml-1m'\n");
    FAIL() << "loaded without required parameters";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("TrainerArgs.eval_batch_size"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("OptimizerArgs")));
  }
}

TEST(ConfigLoad, RankingIsRequiredOnlyWhereBound) {
  EXPECT_FALSE(load_config_text("t.gin", kMinimalConfig).ranking_bound);
  const LoadedConfig loaded =
      load_config_text("t.gin", kMinimalConfig + "RankingArgs.prediction_head_arch = [16, 10]\n");
  EXPECT_TRUE(loaded.ranking_bound);
  EXPECT_THAT(loaded.config.ranking.prediction_head_arch, ElementsAre(16, 10));
}

TEST(ConfigLoad, BlocksAndScopedMacros) {
  const Config config = load(
      "TrainerArgs:\n"
      "  seed = %small/SEED\n"
      "  log_interval = %INTERVAL\n"
      "small/SEED = 3\n"
      "SEED = 4\n"
      "INTERVAL/macro.value = 7\n");
  EXPECT_EQ(config.trainer.seed, 3);
  EXPECT_EQ(config.trainer.log_interval, 7);
  EXPECT_EQ(error_of("TrainerArgs:\n  sed = 1"),
            "t.gin:12:3: unknown parameter TrainerArgs.sed (did you mean 'seed'?)");
  EXPECT_EQ(error_of("TrainerArgs.seed = %smal/SEED\nsmall/SEED = 1"),
            "t.gin:11:20: unknown macro %smal/SEED (did you mean 'small/SEED'?)");
}

TEST(ConfigLoad, ParametersOfOtherVersionsWithoutEffect) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(load("NetworkArgs.layer_type = 'fused'").network, load("").network);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[config] t.gin:11:13: NetworkArgs.layer_type has no effect: all layers are "
            "fused\n");
}

TEST(ConfigLoad, Macros) {
  EXPECT_EQ(error_of("A = %B\nB = [%A]\nTrainerArgs.seed = %A"),
            "t.gin:12:6: macro cycle: %A -> %B -> %A");
  EXPECT_EQ(error_of("UNUSED = %NOWHERE"), "no error") << "as gin: only macros in use are followed";
  std::string doubling = "M0 = ['x', 'x']\n";
  for (int i = 1; i < 60; ++i) {
    doubling += fmt::format("M{} = [%M{}, %M{}]\n", i, i - 1, i - 1);
  }
  EXPECT_THAT(error_of(doubling + "RetrievalArgs.eval_metrics = %M59"),
              HasSubstr("macros expand to more than 1048576 values"));
}

TEST(ConfigLoad, Includes) {
  const TemporaryDirectory directory;
  const auto write = [&](const char* name, const std::string& text) {
    const fs::path file = directory.path() / name;
    fs::create_directories(file.parent_path());
    write_file_atomically(file, text);
    return file.string();
  };
  write("deep/base.gin", kMinimalConfig + "TrainerArgs.seed = 1\nTrainerArgs.log_interval = 2\n");
  write("deep/middle.gin", "include 'base.gin'\nTrainerArgs.log_interval = 3\n");
  const std::string top = write("top.gin", "TrainerArgs.seed = 0\ninclude 'deep/middle.gin'\n");
  const Config config = load_config(top, {}).config;
  EXPECT_EQ(config.trainer.seed, 1) << "an include stands for its lines";
  EXPECT_EQ(config.trainer.log_interval, 3);

  const std::string a = write("a.gin", "\ninclude 'b.gin'\n");
  write("b.gin", "  include \"c.gin\"");
  const std::string c = write("c.gin", "A = 1\ninclude 'a.gin'\n");
  try {
    load_config(a, {});
    FAIL() << "followed an include cycle";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              c + ":2:1: include cycle: a.gin -> b.gin -> c.gin -> a.gin");
  }
  const std::string self = write("self.gin", "include 'self.gin'");
  EXPECT_THROW(load_config(self, {}), UsageError);
  const std::string lost = write("lost.gin", "include 'nowhere.gin'");
  try {
    load_config(lost, {});
    FAIL() << "included a file that does not exist";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(lost + ":1:1: include 'nowhere.gin': cannot open"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
  const std::string wrong = write("wrong.gin", "include 'deep/middle.gin'\nTrainerArgs.sed = 1");
  EXPECT_THROW(load_config(wrong, {}), UsageError);
  EXPECT_THROW(load_config((directory.path() / "no.gin").string(), {}), IoError);
}

TEST(ConfigLoad, TwiceTheSameIncludeIsNoCycle) {
  const TemporaryDirectory directory;
  write_file_atomically(directory.path() / "base.gin", kMinimalConfig);
  write_file_atomically(directory.path() / "x.gin", "include 'base.gin'\ninclude 'base.gin'\n");
  EXPECT_EQ(load_config((directory.path() / "x.gin").string(), {}).config.network.num_layers, 1);
}

TEST(ConfigLoad, TablesAreCollectedByScope) {
  const Config config = load(
      "EmbeddingArgs.item_vocab_size_or_capacity = 11\n"  // for tables that set none
      "user/EmbeddingArgs.feature_names = ['user_id', 'age']\n"
      "action/EmbeddingArgs.feature_names = ['action']\n"
      "user/EmbeddingArgs.table_name = 'user'\n"
      "user/EmbeddingArgs.item_vocab_size_or_capacity = 7\n"
      "action/EmbeddingArgs.table_name = 'action'\n"
      "item/DynamicEmbeddingArgs.feature_names = ['item']\n"
      "item/DynamicEmbeddingArgs.table_name = 'item'\n"
      "item/DynamicEmbeddingArgs.item_vocab_size_or_capacity = 100\n");
  ASSERT_EQ(config.embeddings.size(), 2U);
  EXPECT_EQ(config.embeddings[0].table_name, "user");
  EXPECT_EQ(config.embeddings[0].item_vocab_size_or_capacity, 7);
  EXPECT_EQ(config.embeddings[1].item_vocab_size_or_capacity, 11);
  ASSERT_EQ(config.dynamic_embeddings.size(), 1U);
  EXPECT_THAT(config.dynamic_embeddings[0].feature_names, ElementsAre("item"));
}

// The lines of a benchmark of items and actions.
std::string benchmark_lines() {
  std::string lines = kMinimalConfig.substr(0, kMinimalConfig.find("DatasetArgs")) +
                      kMinimalConfig.substr(kMinimalConfig.find("NetworkArgs"));
  return lines +
         "len/RandomDistribution.dist_type = 'zipf'\n"
         "f/FeatureArgs.feature_names = ['item', 'action']\n"
         "f/FeatureArgs.max_sequence_length = 64\n"
         "f/FeatureArgs.seqlen_dist = @len/RandomDistribution()\n"
         "f/FeatureArgs.value_dists = {'item': @len/RandomDistribution()}\n"
         "i/DynamicEmbeddingArgs.feature_names = ['item']\n"
         "i/DynamicEmbeddingArgs.table_name = 'item'\n"
         "i/DynamicEmbeddingArgs.item_vocab_size_or_capacity = 100\n"
         "a/EmbeddingArgs.feature_names = ['action']\n"
         "a/EmbeddingArgs.table_name = 'action'\n"
         "a/EmbeddingArgs.item_vocab_size_or_capacity = 10\n"
         "BenchmarkDatasetArgs.feature_args = [@f/FeatureArgs()]\n"
         "BenchmarkDatasetArgs.embedding_args = [\n"
         "    @i/DynamicEmbeddingArgs(),\n"
         "    @a/EmbeddingArgs(),\n"
         "]\n"
         "BenchmarkDatasetArgs.item_feature_name = 'item'\n"
         "BenchmarkDatasetArgs.contextual_feature_names = []\n";
}

std::string benchmark_error(const std::string& lines) {
  try {
    load_config_text("t.gin", benchmark_lines() + lines);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConfigLoad, BenchmarkDatasetReplacesDataset) {
  const Config config = load_config_text("t.gin", benchmark_lines()).config;
  ASSERT_TRUE(config.benchmark_dataset);
  const BenchmarkDatasetArgs& benchmark = *config.benchmark_dataset;
  ASSERT_EQ(benchmark.feature_args.size(), 1U);
  EXPECT_EQ(benchmark.feature_args[0].seqlen_dist->dist_type, Distribution::zipf);
  EXPECT_EQ(benchmark.feature_args[0].value_dists.at("item").dist_type, Distribution::zipf);
  ASSERT_EQ(benchmark.embedding_args.size(), 2U);
  EXPECT_EQ(std::get<DynamicEmbeddingArgs>(benchmark.embedding_args[0]),
            config.dynamic_embeddings.at(0));
  EXPECT_EQ(std::get<EmbeddingArgs>(benchmark.embedding_args[1]), config.embeddings.at(0));
}

TEST(ConfigLoad, References) {
  const std::string at = "t.gin:27:37: BenchmarkDatasetArgs.feature_args: ";
  const std::string set = "BenchmarkDatasetArgs.feature_args = ";
  EXPECT_EQ(benchmark_error(set + "[@f/FeatureArgs]"),
            "t.gin:27:38: BenchmarkDatasetArgs.feature_args: expected @scope/FeatureArgs(), got "
            "@f/FeatureArgs; add () to make an instance");
  EXPECT_EQ(benchmark_error(set + "@f/FeatureArgs()"),
            at + "expected a list, got @f/FeatureArgs()");
  EXPECT_EQ(benchmark_error(set + "[@a/EmbeddingArgs()]"),
            "t.gin:27:38: BenchmarkDatasetArgs.feature_args: expected @scope/FeatureArgs(), got "
            "@a/EmbeddingArgs()");
  EXPECT_EQ(benchmark_error(set + "[@f/FeatureArg()]"),
            "t.gin:27:38: unknown class FeatureArg (did you mean 'FeatureArgs'?)");
  EXPECT_EQ(benchmark_error("f/FeatureArgs.seqlen_dist = @lens/RandomDistribution()"),
            "t.gin:27:29: f/FeatureArgs.seqlen_dist: no parameter of lens/RandomDistribution is "
            "bound (did you mean 'len'?)");
  EXPECT_THAT(benchmark_error("g/FeatureArgs.is_jagged = True\n" + set + "[@g/FeatureArgs()]"),
              HasSubstr("\n  g/FeatureArgs.max_sequence_length  ("));
  EXPECT_EQ(benchmark_error("DatasetArgs.dataset_name = 'ml-1m'"),
            "t.gin:27:28: DatasetArgs.dataset_name: both DatasetArgs and BenchmarkDatasetArgs are "
            "bound; expected one of them");
}

TEST(ConfigLoad, UnusedScopesAreReported) {
  testing::internal::CaptureStderr();
  load("lost/FeatureArgs.is_jagged = True");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("t.gin:11:18: lost/FeatureArgs.is_jagged has no effect: nothing refers to "
                        "@lost/FeatureArgs()"));
  testing::internal::CaptureStderr();
  load("TrainerArgs.seed = 1\nTrainerArgs.seed = 2");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  load("import a.b");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("t.gin:11:1: import a.b has no effect"));
}

}  // namespace
}  // namespace seqfuse::config::config_load_test
