// seqfuse train as people run it: a dataset made by preprocess, runs, resuming, signals, mistakes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/temporary_directory.h"

namespace seqfuse {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kConfig = R"(
DatasetArgs.dataset_name = 'csv'
DatasetArgs.max_history_seqlen = 10
DatasetArgs.split = 'leave_one_out'
DatasetArgs.shuffle = True
NetworkArgs.architecture = 'hstu_research'
NetworkArgs.num_layers = 2
NetworkArgs.hidden_size = 16
NetworkArgs.num_attention_heads = 1
NetworkArgs.kv_channels = 16
RetrievalArgs.negatives = 'uniform'
RetrievalArgs.num_negatives = 8
OptimizerArgs.optimizer_str = 'adamw'
OptimizerArgs.learning_rate = 0.01
TrainerArgs.train_batch_size = 8
TrainerArgs.eval_batch_size = 8
TrainerArgs.max_train_iters = 12
TrainerArgs.eval_interval = 5
TrainerArgs.log_interval = 1
)";

// One dataset for all tests: 40 users on a ring of 15 items.
class Train : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory;
    std::ofstream log(shared_->path() / "log.csv");
    log << "user_id,item_id,timestamp,rating\n";
    for (int u = 0; u < 40; ++u) {
      for (int i = 0; i < 8; ++i) {
        log << u << ',' << (u * 3 + i) % 15 << ',' << 1000 + 60 * i << ',' << i % 5 << '\n';
      }
    }
    log.close();
    write_file_atomically(shared_->path() / "small.gin", kConfig);
    const Outcome result = run_seqfuse(
        fmt::format("preprocess --dataset-name csv --input {0}/log.csv --output {0}/data "
                    "--time-column timestamp "
                    "--action-column rating",
                    shared_->path().string()));
    ASSERT_EQ(result.code, 0) << result.text();
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }

  std::string common(const std::string& task = "retrieval") const {
    return fmt::format("train {} --gin-config-file {}/small.gin --data {}/data", task, shared(),
                       shared());
  }
  static std::string shared() { return shared_->path().string(); }
  std::string run(const std::string& name = "run") const {
    return (directory_.path() / name).string();
  }
  void expect_refused(const std::string& arguments, int code, const std::string& part) const {
    const Outcome result = run_seqfuse(arguments);
    EXPECT_EQ(result.code, code) << result.text();
    EXPECT_THAT(result.text(), HasSubstr(part));
  }

  TemporaryDirectory directory_;
  static TemporaryDirectory* shared_;
};

TemporaryDirectory* Train::shared_ = nullptr;

TEST_F(Train, EndsWithMetricsBesideBaselinesAndSaysWhereTheRunIs) {
  const Outcome result = run_seqfuse(common() + " --output " + run());
  ASSERT_EQ(result.code, 0) << result.text();
  for (const char* part : {"HR@10", "NDCG@10", "popularity", "Markov", "operative_config.gin",
                           "parameters in tables", "12 steps"}) {
    EXPECT_THAT(result.text(), HasSubstr(part));
  }
  EXPECT_THAT(result.text(), HasSubstr("run: " + run()));
  EXPECT_TRUE(fs::exists(run() + "/checkpoints/step_12/state.json"));
  EXPECT_THAT(read_file(run() + "/metrics.jsonl"), HasSubstr("\"loss\""));
  // The configuration in force is whole: a second run from it alone gives the same losses.
  const Outcome again = run_seqfuse(fmt::format(
      "train retrieval --gin-config-file {}/operative_config.gin --data {}/data --output {}", run(),
      shared(), run("again")));
  ASSERT_EQ(again.code, 0) << again.text();
  EXPECT_EQ(read_file(run() + "/operative_config.gin"),
            read_file(run("again") + "/operative_config.gin"));
}

TEST_F(Train, GeneratedUsersNeedNoDataset) {
  const std::string small =
      " --gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=1000"
      " --gin event/FeatureArgs.max_sequence_length=32 --gin NetworkArgs.hidden_size=16"
      " --gin NetworkArgs.kv_channels=8 --gin NetworkArgs.num_layers=1"
      " --gin BenchmarkDatasetArgs.num_generated_batches=4 --gin TrainerArgs.max_train_iters=3"
      " --gin TrainerArgs.train_batch_size=8";
  const Outcome result = run_seqfuse(
      fmt::format("train ranking --gin-config-file {}/configs/benchmark_ranking.gin{} --output {}",
                  SEQFUSE_SOURCE_DIR, small, run()));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("AUC bit_7"));
  EXPECT_TRUE(fs::exists(run() + "/checkpoints/step_3/state.json"));
}

TEST_F(Train, QuietPrintsTheTableAlone) {
  const Outcome result = run_seqfuse(common() + " --quiet --output " + run());
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), testing::Not(HasSubstr("[train] step")));
  EXPECT_THAT(result.text(), HasSubstr("HR@10"));
}

TEST_F(Train, AnExistingRunIsKeptUnlessForcedOrResumed) {
  ASSERT_EQ(run_seqfuse(common() + " --output " + run()).code, 0);
  expect_refused(common() + " --output " + run(), 2, "--force");
  EXPECT_EQ(run_seqfuse(common() + " --force --output " + run()).code, 0);
  const Outcome longer = run_seqfuse(
      fmt::format("train retrieval --resume {} --gin TrainerArgs.max_train_iters=15", run()));
  EXPECT_EQ(longer.code, 0) << longer.text();
  EXPECT_THAT(longer.text(), HasSubstr("resuming from"));
  EXPECT_TRUE(fs::exists(run() + "/checkpoints/step_15"));
  expect_refused(fmt::format("train retrieval --resume {} --gin NetworkArgs.num_layers=1", run()),
                 1, "num_layers");
}

TEST_F(Train, ASignalFinishesTheStepSavesAndCanBeResumed) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string path = run(signal == SIGINT ? "int" : "term");
    const std::vector<std::string> arguments = {SEQFUSE_BINARY,
                                                "train",
                                                "retrieval",
                                                "--gin-config-file",
                                                shared() + "/small.gin",
                                                "--data",
                                                shared() + "/data",
                                                "--output",
                                                path,
                                                "--gin",
                                                "TrainerArgs.max_train_iters=1000000",
                                                "--gin",
                                                "TrainerArgs.eval_interval=0"};
    const pid_t child = fork();
    if (child == 0) {
      std::freopen("/dev/null", "w", stderr);
      std::vector<char*> pointers;
      for (const std::string& argument : arguments) {
        pointers.push_back(const_cast<char*>(argument.c_str()));
      }
      pointers.push_back(nullptr);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
    // Training is under way once a step has been logged.
    for (int wait = 0; wait < 1200; ++wait) {
      std::error_code error;
      if (fs::file_size(path + "/metrics.jsonl", error) > 0 && !error) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ASSERT_EQ(kill(child, signal), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    int64_t step = -1;
    for (const auto& entry : fs::directory_iterator(path + "/checkpoints")) {
      step = std::stoll(entry.path().filename().string().substr(5));
    }
    ASSERT_GE(step, 1);
    const Outcome resumed = run_seqfuse(fmt::format(
        "train retrieval --resume {} --gin TrainerArgs.max_train_iters={}", path, step + 2));
    EXPECT_EQ(resumed.code, 0) << resumed.text();
    EXPECT_TRUE(fs::exists(fmt::format("{}/checkpoints/step_{}", path, step + 2)));
  }
}

TEST_F(Train, MistakesAreToldWithWhatToDo) {
  expect_refused("train", 2, "task");
  expect_refused("train sorting", 2, "ranking");
  expect_refused("train retrieval --output " + run(), 2, "--gin-config-file");
  expect_refused(
      fmt::format("train retrieval --gin-config-file {}/small.gin --output {}", shared(), run()), 2,
      "--data");
  expect_refused(common() + " --gin \"DatasetArgs.dataset_name='ml-1m'\" --output " + run(), 2,
                 "holds 'csv'");
  expect_refused(common() + " --gin NetworkArgs.num_layer=3 --output " + run(), 2, "num_layers");
  expect_refused(common() + " --gin \"NetworkArgs.kernel_backend='triton'\" --output " + run(), 2,
                 "Only CUTLASS backend is supported");
  expect_refused(common("ranking") + " --output " + run(), 2, "cannot rank");
  expect_refused(common("ranking") + " --gin \"NetworkArgs.architecture='hstu'\" --output " + run(),
                 2, "prediction_head_arch is missing");
  expect_refused(common("ranking") +
                     " --gin \"NetworkArgs.architecture='hstu'\" --gin "
                     "\"RankingArgs.prediction_head_arch=[8,3]\" --output " +
                     run(),
                 2, "classes");
  expect_refused(common() +
                     " --gin TrainerArgs.train_batch_size=64 --gin TrainerArgs.drop_last=True "
                     "--output " +
                     run(),
                 1, "drop_last");
  EXPECT_FALSE(fs::exists(run() + "/checkpoints"));
}

TEST_F(Train, AGpuThatIsNotThereIsNotTrainedOn) {
  if (fs::exists("/dev/nvidia0")) GTEST_SKIP() << "this machine has a GPU";
  expect_refused(common() + " --device cuda --output " + run(), 2, "there is no GPU");
  expect_refused(common() + " --require-sm 8.0 --output " + run(), 2, "there is no GPU");
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(Train, ADivergingLossStopsAndNamesTheStep) {
  const Outcome result =
      run_seqfuse(common() + " --gin OptimizerArgs.learning_rate=1e38 --output " + run());
  EXPECT_EQ(result.code, 1) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("in step"));
  EXPECT_THAT(result.text(), HasSubstr("learning_rate"));
}

}  // namespace
}  // namespace seqfuse
