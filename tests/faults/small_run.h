// A run of about a second that saves a checkpoint after every step, for tests that disturb it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/cli/background_process.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/paths.h"
#include "tests/run_metrics.h"
#include "tests/temporary_directory.h"

namespace seqfuse {

constexpr const char* kSmallConfig = R"(
DatasetArgs.dataset_name = 'csv'
DatasetArgs.max_history_seqlen = 10
DatasetArgs.split = 'leave_one_out'
DatasetArgs.shuffle = True
NetworkArgs.num_layers = 1
NetworkArgs.hidden_size = 16
NetworkArgs.num_attention_heads = 1
NetworkArgs.kv_channels = 16
NetworkArgs.num_position_buckets = 32
NetworkArgs.hidden_dropout = 0.25
RetrievalArgs.negatives = 'uniform'
RetrievalArgs.num_negatives = 8
RetrievalArgs.eval_metrics = ['HR@3', 'NDCG@3', 'MRR']
RankingArgs.prediction_head_arch = [8, 5]
RankingArgs.eval_metrics = ['AUC', 'NE', 'ACC']
OptimizerArgs.optimizer_str = 'adamw'
OptimizerArgs.learning_rate = 0.00125
OptimizerArgs.max_grad_norm = 1.5
TrainerArgs.train_batch_size = 8
TrainerArgs.eval_batch_size = 8
TrainerArgs.max_train_iters = 40
TrainerArgs.eval_interval = 15
TrainerArgs.log_interval = 1
TrainerArgs.ckpt_save_interval = 1
TrainerArgs.ckpt_keep = 2
)";

// The dataset and configuration of all tests, created once: 60 users around a ring of 15 items.
class SmallData {
 public:
  static const SmallData& get() {
    static const SmallData data;
    return data;
  }
  std::string data() const { return path("data"); }
  std::string config() const { return path("small.gin"); }
  std::string log() const { return path("log.csv"); }

 private:
  SmallData() {
    std::ofstream log(path("log.csv"));
    log << "user_id,item_id,timestamp,rating\n";
    for (int u = 0; u < 60; ++u) {
      for (int i = 0; i < 8; ++i) {
        log << u << ',' << (u * 3 + i) % 15 << ',' << 1000 + 60 * i << ',' << (i % 5 + 1) * 0.5
            << '\n';
      }
    }
    log.close();
    write_file_atomically(config(), kSmallConfig);
    const Outcome outcome = run_seqfuse(
        fmt::format("preprocess --dataset-name csv --input {} --output {} --time-column timestamp "
                    "--action-column rating",
                    this->log(), data()));
    if (outcome.code != 0) throw std::runtime_error(outcome.text());
  }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  TemporaryDirectory directory_;
};

// "train retrieval ..." into this run directory; resumes an existing run.
inline std::string train_arguments(const std::string& run,
                                   const std::string& data = SmallData::get().data()) {
  return fmt::format(
      "train retrieval --gin-config-file {} --data {} --output {} --resume --threads 1",
      SmallData::get().config(), data, run);
}

inline std::vector<std::string> train_command(const std::string& run, const std::string& more = "",
                                              const std::string& data = SmallData::get().data()) {
  std::vector<std::string> command = words_of(train_arguments(run, data) + " " + more);
  command.insert(command.begin(), test::binary());
  return command;
}

// All files of a checkpoint's weights and optimiser state, by name.
inline std::map<std::string, std::string> tensors_of(const std::string& run, int64_t step) {
  const std::filesystem::path checkpoint = fmt::format("{}/checkpoints/step_{}", run, step);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    files[std::filesystem::relative(entry.path(), checkpoint).string()] = read_file(entry.path());
  }
  return files;
}

// Compares the last weights, bit for bit, and the log.
inline void expect_same_run(const std::string& run, const std::string& expected,
                            int64_t step = 40) {
  const auto wanted = tensors_of(expected, step);
  EXPECT_GE(wanted.size(), 3U);
  EXPECT_TRUE(tensors_of(run, step) == wanted) << "the weights differ";
  EXPECT_EQ(metrics_of(run), metrics_of(expected));
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace seqfuse
