// A small dataset, and runs on it whose losses are the same for any number of processes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/cli/background_process.h"
#include "tests/run_metrics.h"
#include "tests/temporary_directory.h"

namespace seqfuse {

// 12 users per step for any number of processes. Epochs end with a batch of 2 users, so that one of
// three processes has none. Random numbers do not depend on the assignment of users to processes.
inline constexpr const char* kConfig = R"(
DatasetArgs.dataset_name = 'csv'
DatasetArgs.max_history_seqlen = 20
DatasetArgs.split = 'leave_one_out'
DatasetArgs.shuffle = True
NetworkArgs.num_layers = 2
NetworkArgs.hidden_size = 16
NetworkArgs.num_attention_heads = 2
NetworkArgs.kv_channels = 8
NetworkArgs.hidden_dropout = 0.0
RetrievalArgs.negatives = 'full'
RetrievalArgs.eval_metrics = ['HR@3', 'NDCG@3', 'MRR']
RankingArgs.prediction_head_arch = [8, 5]
RankingArgs.eval_metrics = ['AUC', 'NE', 'ACC']
OptimizerArgs.optimizer_str = 'adamw'
OptimizerArgs.learning_rate = 0.01
OptimizerArgs.max_grad_norm = 0.5
TrainerArgs.train_batch_size = 12
TrainerArgs.eval_batch_size = 8
TrainerArgs.max_train_iters = 12
TrainerArgs.eval_interval = 6
TrainerArgs.log_interval = 1
TrainerArgs.rank_timeout_seconds = 4
)";

// The same with all tables sharded.
inline constexpr const char* kSharded = R"(
EmbeddingArgs.item_vocab_size_or_capacity = 24
EmbeddingArgs.sharding_type = 'model_parallel'
item/EmbeddingArgs.feature_names = ['item']
item/EmbeddingArgs.table_name = 'item'
action/EmbeddingArgs.feature_names = ['action']
action/EmbeddingArgs.table_name = 'action'
)";

// Compares losses and metrics to 1e-5.
inline void expect_same_metrics(const std::string& run, const std::string& expected_run) {
  const std::vector<nlohmann::json> found = metrics_of(run), expected = metrics_of(expected_run);
  ASSERT_EQ(found.size(), expected.size());
  double loss_difference = 0, metric_difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i]["step"], expected[i]["step"]);
    if (expected[i].contains("loss")) {
      loss_difference = std::max(loss_difference, std::abs(found[i]["loss"].get<double>() -
                                                           expected[i]["loss"].get<double>()));
      const double norm = expected[i]["gradient_norm"];
      // Rounding errors grow during a run, because Adam divides small gradients by their own size.
      EXPECT_NEAR(found[i]["gradient_norm"].get<double>(), norm, 3e-5 * norm);
      continue;
    }
    for (const auto& [name, value] : expected[i]["evaluation"].items()) {
      metric_difference =
          std::max(metric_difference,
                   std::abs(found[i]["evaluation"][name].get<double>() - value.get<double>()));
    }
  }
  EXPECT_LT(loss_difference, 1e-5);
  EXPECT_LT(metric_difference, 1e-5);
  testing::Test::RecordProperty("loss_difference", fmt::format("{:.2e}", loss_difference));
}

class DistributedRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory;
    // 50 users around a ring of 23 items; a few have long histories, most short ones.
    std::ofstream log(shared_->path() / "log.csv");
    log << "user_id,item_id,timestamp,rating\n";
    for (int u = 0; u < 50; ++u) {
      const int events = u % 9 == 0 ? 20 + u % 7 : 3 + u % 5;
      for (int i = 0; i < events; ++i) {
        log << u << ',' << (u * 3 + i * (1 + u % 2)) % 23 << ',' << 1000 + 60 * i << ','
            << (u + i) % 5 << '\n';
      }
    }
    log.close();
    write_file_atomically(shared_->path() / "small.gin", kConfig);
    write_file_atomically(shared_->path() / "sharded.gin", std::string(kConfig) + kSharded);
    const Outcome result = run_seqfuse(
        fmt::format("preprocess --dataset-name csv --input {0}/log.csv --output {0}/data "
                    "--time-column timestamp --action-column rating",
                    shared_->path().string()));
    ASSERT_EQ(result.code, 0) << result.text();
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }

  // The configuration of one of `size` processes: the same 12 users per step.
  static std::string command(const std::string& task, const std::string& run, int size,
                             const std::string& config = "small.gin") {
    return fmt::format(
        "train {} --gin-config-file {}/{} --data {}/data --output {} --gin "
        "TrainerArgs.train_batch_size={} --threads 1",
        task, shared_->path().string(), config, shared_->path().string(), run, 12 / size);
  }
  std::string run(const std::string& name) const { return (directory_.path() / name).string(); }

  TemporaryDirectory directory_;
  inline static TemporaryDirectory* shared_ = nullptr;
};

}  // namespace seqfuse
