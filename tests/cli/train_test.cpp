// seqfuse train from the command line: a dataset from preprocess, runs, resuming, signals, errors.
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
#include "tests/paths.h"
#include "tests/temporary_directory.h"

namespace seqfuse::train_test {
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
  // The operative configuration is complete: a run with only it has the same losses.
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
                  test::source_directory(), small, run()));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("AUC bit_7"));
  EXPECT_TRUE(fs::exists(run() + "/checkpoints/step_3/state.json"));
}

// Settings of published benchmarks: an action table with fewer ids than the tasks' bits require, a
// layer_type, and tasks without a positive label, which a warning names.
TEST_F(Train, GeneratedActionsHaveABitForEachTask) {
  const Outcome result = run_seqfuse(
      fmt::format("train ranking --gin-config-file {}/configs/benchmark_ranking.gin "
                  "--gin action/EmbeddingArgs.item_vocab_size_or_capacity=100 "
                  "--gin \"NetworkArgs.layer_type='fused'\" "
                  "--gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=1000 "
                  "--gin event/FeatureArgs.max_sequence_length=32 --gin NetworkArgs.hidden_size=16 "
                  "--gin NetworkArgs.kv_channels=8 --gin NetworkArgs.num_layers=1 "
                  "--gin BenchmarkDatasetArgs.num_generated_batches=4 "
                  "--gin TrainerArgs.max_train_iters=2 --gin TrainerArgs.train_batch_size=8 "
                  "--output {}",
                  test::source_directory(), run()));
  ASSERT_EQ(result.code, 0) << result.text();
  EXPECT_THAT(result.text(), HasSubstr("none have bit_7: such tasks cannot be learned"));
  EXPECT_THAT(result.text(), testing::Not(HasSubstr("have bit_6")));
  EXPECT_THAT(result.text(), HasSubstr("NetworkArgs.layer_type has no effect"));
  // The state contains an undefined metric, and the users depend on the batch size.
  const std::string resume = "train ranking --resume " + run() + " --gin TrainerArgs.";
  const Outcome resumed = run_seqfuse(resume + "max_train_iters=3");
  EXPECT_EQ(resumed.code, 0) << resumed.text();
  expect_refused(resume + "train_batch_size=4", 2, "trained on generated users");
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
  EXPECT_THAT(read_file(run() + "/operative_config.gin"),
              HasSubstr("TrainerArgs.max_train_iters = 15\n"));
}

TEST_F(Train, AllowedChangesOnResumeAreRecordedAndOthersRefused) {
  ASSERT_EQ(run_seqfuse(common() + " --output " + run()).code, 0);
  const std::string resume = "train retrieval --resume " + run();
  const std::string config = read_file(run() + "/operative_config.gin"),
                    metrics = read_file(run() + "/metrics.jsonl");
  for (const std::string change : {"DatasetArgs.split='user'", "DatasetArgs.max_history_seqlen=9",
                                   "NetworkArgs.num_layers=1", "OptimizerArgs.optimizer_str='sgd'",
                                   "RetrievalArgs.temperature=0.1", "TrainerArgs.seed=1"}) {
    const std::string name = change.substr(0, change.find('='));
    expect_refused(resume + " --gin OptimizerArgs.learning_rate=0.02 --gin \"" + change + "\"", 2,
                   "cannot be resumed with another value of\n  " + name + ": ");
  }
  expect_refused("train ranking --resume " + run(), 2, "is a retrieval run");
  EXPECT_EQ(read_file(run() + "/operative_config.gin"), config);
  EXPECT_EQ(read_file(run() + "/metrics.jsonl"), metrics);

  const Outcome resumed = run_seqfuse(
      resume +
      " --gin OptimizerArgs.learning_rate=0.02 --gin TrainerArgs.max_train_iters=14"
      " --gin NetworkArgs.hidden_dropout=0.5 --gin \"RetrievalArgs.eval_metrics=['MRR']\"");
  ASSERT_EQ(resumed.code, 0) << resumed.text();
  EXPECT_THAT(resumed.text(),
              HasSubstr("OptimizerArgs.learning_rate is 0.02 after step 12; it was 0.01\n"));
  const std::string now = read_file(run() + "/operative_config.gin");
  EXPECT_THAT(now, HasSubstr("OptimizerArgs.learning_rate = 0.02\n"));
  EXPECT_THAT(now, HasSubstr("NetworkArgs.hidden_dropout = 0.5\n"));
  EXPECT_THAT(read_file(run() + "/metrics.jsonl"),
              HasSubstr(R"("OptimizerArgs.learning_rate":{"before":"0.01","now":"0.02"})"));
  EXPECT_THAT(read_file(run() + "/metrics.jsonl"), HasSubstr(R"("learning_rate":0.02)"));

  // The next plain resume keeps it, and `evaluate` uses events that were never trained on.
  const Outcome again = run_seqfuse(resume + " --gin TrainerArgs.max_train_iters=16");
  ASSERT_EQ(again.code, 0) << again.text();
  EXPECT_THAT(again.text(), testing::Not(HasSubstr("learning_rate is")));
  EXPECT_EQ(run_seqfuse("evaluate " + run()).code, 0);
  const std::string page = run() + ".html";
  ASSERT_EQ(run_seqfuse("report " + run() + " -o " + page).code, 0);
  EXPECT_THAT(read_file(page), HasSubstr("<th>run</th>"));
  EXPECT_THAT(read_file(page), HasSubstr("<td>OptimizerArgs.learning_rate</td>"
                                         "<td class=\"code\">0.01</td>"
                                         "<td class=\"code\">0.02</td>"));
}

TEST_F(Train, ARunIsResumedOnItsDatasetWhereverThatIs) {
  ASSERT_EQ(run_seqfuse(common() + " --output " + run()).code, 0);
  const std::string moved = run("moved"), resume = "train retrieval --resume " + run();
  fs::copy(shared() + "/data", moved, fs::copy_options::recursive);
  const std::string longer = " --gin TrainerArgs.max_train_iters=";
  ASSERT_EQ(run_seqfuse(resume + longer + "13 --data " + moved).code, 0);
  EXPECT_THAT(read_file(run() + "/run.json"), HasSubstr("\"dataset_path\": \"" + moved + "\""));
  ASSERT_EQ(run_seqfuse(resume + longer + "14").code, 0);

  // One event less; growing_test.cpp has those that have grown.
  std::string log = read_file(shared() + "/log.csv");
  log.erase(log.rfind('\n', log.size() - 2) + 1);
  std::ofstream(run("log.csv")) << log;
  const std::string other = run("other");
  ASSERT_EQ(run_seqfuse(fmt::format("preprocess --dataset-name csv --input {} --output {} "
                                    "--time-column timestamp --action-column rating",
                                    run("log.csv"), other))
                .code,
            0);
  expect_refused(resume + longer + "15 --data " + other, 1,
                 "holds 319 events of 40 users, but " + run() + " was trained on 320 of 40");
}

TEST_F(Train, LabelsThatLeaveNothingToLearnAreRefused) {
  const std::string ranking = common("ranking") + " --output " + run() +
                              " --gin \"NetworkArgs.architecture='hstu'\" --gin "
                              "\"RankingArgs.prediction_head_arch=[8,1]\" --gin "
                              "RankingArgs.label_threshold=";
  expect_refused(ranking + "5", 2,
                 "RankingArgs.label_threshold is 5, but labels of csv are 0 to 4 (0, 1, 2, 3, 4): "
                 "expected 1 to 4");
  expect_refused(ranking + "0", 2, "expected 1 to 4");
  // Ratings cycle from 0 to 4 and from 0 to 2; leave_one_out trains on the first six, and the
  // candidates are the last of these, with a rating of 0.
  expect_refused(ranking + "4 --gin DatasetArgs.max_num_candidates=1", 1,
                 "RankingArgs.label_threshold is 4, and none of the 40 training labels reach it");
}

TEST_F(Train, ASignalFinishesTheStepSavesAndCanBeResumed) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string path = run(signal == SIGINT ? "int" : "term");
    const std::vector<std::string> arguments = {test::binary(),
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
    // Training has started when a step has been logged.
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
}  // namespace seqfuse::train_test
