// seqfuse train on several processes, as torchrun and other launchers start them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tests/cli/background_process.h"
#include "tests/temporary_directory.h"

namespace seqfuse {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::json;
using testing::HasSubstr;

// 12 users a step however many processes share them. Epochs end with a batch of 2 users, so that
// one of three processes has none of it. Nothing is drawn that depends on who has which user.
constexpr const char* kConfig = R"(
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

std::vector<std::string> torchrun(int size, const std::string& arguments) {
  return words_of(
      fmt::format("{} -m torch.distributed.run --standalone --no-python --nproc_per_node {} {} {}",
                  SEQFUSE_PYTHON, size, SEQFUSE_BINARY, arguments));
}

std::vector<json> metrics_of(const std::string& run) {
  std::ifstream file(run + "/metrics.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// Losses to 1e-5, metrics likewise.
void expect_same_metrics(const std::string& run, const std::string& expected_run) {
  const std::vector<json> found = metrics_of(run), expected = metrics_of(expected_run);
  ASSERT_EQ(found.size(), expected.size());
  double loss_difference = 0, metric_difference = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i]["step"], expected[i]["step"]);
    if (expected[i].contains("loss")) {
      loss_difference = std::max(loss_difference, std::abs(found[i]["loss"].get<double>() -
                                                           expected[i]["loss"].get<double>()));
      const double norm = expected[i]["gradient_norm"];
      EXPECT_NEAR(found[i]["gradient_norm"].get<double>(), norm, 1e-5 * norm);
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

class Distributed : public testing::Test {
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

  // Of size processes: the same 12 users a step.
  static std::string command(const std::string& task, const std::string& run, int size) {
    return fmt::format(
        "train {} --gin-config-file {}/small.gin --data {}/data --output {} --gin "
        "TrainerArgs.train_batch_size={} --threads 1",
        task, shared_->path().string(), shared_->path().string(), run, 12 / size);
  }
  std::string run(const std::string& name) const { return (directory_.path() / name).string(); }

  TemporaryDirectory directory_;
  static TemporaryDirectory* shared_;
};

TemporaryDirectory* Distributed::shared_ = nullptr;

TEST_F(Distributed, TwoAndThreeProcessesHaveTheLossesAndMetricsOfOne) {
  for (const std::string task : {"retrieval", "ranking"}) {
    const std::string one = run(task + "1");
    ASSERT_EQ(run_seqfuse(command(task, one, 1)).code, 0);
    for (const int size : {2, 3}) {
      const std::string several = run(task + std::to_string(size));
      // Who has which user makes no difference.
      const std::string more = size == 3 ? " --gin TrainerArgs.enable_balanced_shuffler=True" : "";
      const Outcome outcome = in_processes(size, command(task, several, size) + more);
      ASSERT_EQ(outcome.code, 0) << outcome.out;
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[train] {} processes, gloo", size)));
      expect_same_metrics(several, one);
    }
  }
}

TEST_F(Distributed, TheResearchArchitectureUnderTorchrunWithAccumulatedBatches) {
  const std::string more =
      " --gin NetworkArgs.architecture='hstu_research' --gin "
      "TrainerArgs.gradient_accumulation_steps=2 --gin TrainerArgs.max_train_iters=6";
  ASSERT_EQ(Background(words_of(SEQFUSE_BINARY " " + command("retrieval", run("one"), 1) + more))
                .wait()
                .code,
            0);
  const Outcome outcome =
      Background(torchrun(2, command("retrieval", run("two"), 2) + more)).wait();
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("[train] 2 processes, gloo"));
  EXPECT_THAT(outcome.out, HasSubstr("run: " + run("two")));
  expect_same_metrics(run("two"), run("one"));
}

TEST_F(Distributed, ACheckpointOfTwoProcessesGoesOnInOneAndInThree) {
  const std::string whole = run("whole");
  ASSERT_EQ(run_seqfuse(command("retrieval", whole, 1)).code, 0);
  const Outcome first = in_processes(
      2, command("retrieval", run("part"), 2) + " --gin TrainerArgs.max_train_iters=6");
  ASSERT_EQ(first.code, 0) << first.out;
  for (const int size : {1, 3}) {
    const std::string part = run("part" + std::to_string(size));
    fs::copy(run("part"), part, fs::copy_options::recursive);
    const Outcome outcome = in_processes(size, command("retrieval", part, size) + " --resume");
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("resuming from"));
    expect_same_metrics(part, whole);
  }
}

// The process of a rank below torchrun.
pid_t pid_of_rank(const std::string& run, int rank) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    try {
      const std::string arguments = read_file(entry.path() / "cmdline");
      const std::string environment = read_file(entry.path() / "environ");
      if (arguments.starts_with(SEQFUSE_BINARY) && arguments.find(run) != std::string::npos &&
          environment.find(std::string("\0RANK=", 6) + std::to_string(rank)) != std::string::npos) {
        return static_cast<pid_t>(std::stoi(name));
      }
    } catch (const Error&) {
      continue;  // it has ended meanwhile
    }
  }
  return -1;
}

void wait_for_first_steps(const std::string& run) {
  for (int wait = 0; wait < 1200; ++wait) {
    std::error_code error;
    if (fs::file_size(run + "/metrics.jsonl", error) > 500 && !error) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  FAIL() << "no step was logged";
}

// A whole one: others have "tmp" in their names. Checkpoints come and go, so any will do.
void wait_for_a_checkpoint(const std::string& run) {
  for (int wait = 0; wait < 1200; ++wait) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints", error)) {
      if (entry.path().filename().string().find("tmp") == std::string::npos) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  FAIL() << "no checkpoint was written";
}

TEST_F(Distributed, AProcessThatDiesOrStopsEndsTheJobAndItIsResumed) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::string path = run(signal == SIGKILL ? "killed" : "stopped");
    Background job(torchrun(2, command("retrieval", path, 2) +
                                   " --gin TrainerArgs.max_train_iters=1000000 --gin "
                                   "TrainerArgs.ckpt_save_interval=5"));
    wait_for_first_steps(path);
    wait_for_a_checkpoint(path);
    const pid_t pid = pid_of_rank(path, 1);
    ASSERT_GT(pid, 0);
    const auto start = Clock::now();
    ASSERT_EQ(kill(pid, signal), 0);
    const Outcome outcome = job.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    RecordProperty(signal == SIGKILL ? "seconds_killed" : "seconds_stopped",
                   fmt::format("{:.1f}", seconds));
    EXPECT_NE(outcome.code, 0);
    EXPECT_LT(seconds, 15);
    EXPECT_THAT(outcome.out, HasSubstr(signal == SIGKILL ? "rank 1 (process"
                                                         : "rank 1 has not been heard of for 4 s"));
    EXPECT_THAT(outcome.out, HasSubstr("rank 0 waited in "));
    EXPECT_THAT(outcome.out, HasSubstr("--resume"));
  }
  const auto newest = [&] {
    int64_t step = 0;
    for (const auto& entry : fs::directory_iterator(run("killed") + "/checkpoints")) {
      const std::string name = entry.path().filename().string();
      if (name.find("tmp") == std::string::npos)
        step = std::max<int64_t>(step, std::stoll(name.substr(5)));
    }
    return step;
  };
  const int64_t step = newest();
  ASSERT_GE(step, 5);
  const Outcome resumed =
      in_processes(2, command("retrieval", run("killed"), 2) +
                          fmt::format(" --resume --gin TrainerArgs.max_train_iters={}", step + 3));
  EXPECT_EQ(resumed.code, 0) << resumed.out;
  EXPECT_EQ(newest(), step + 3);
}

TEST_F(Distributed, ASignalToOneProcessStopsAllAfterTheSameStep) {
  const std::string path = run("signal");
  Background job(torchrun(2, command("retrieval", path, 2) +
                                 " --gin TrainerArgs.max_train_iters=1000000 --gin "
                                 "TrainerArgs.eval_interval=0"));
  wait_for_first_steps(path);
  ASSERT_EQ(kill(pid_of_rank(path, 1), SIGTERM), 0);
  const Outcome outcome = job.wait();
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("stopped by SIGTERM after step"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path + "/checkpoints"), {}), 1);
}

TEST_F(Distributed, MistakesNameTheRank) {
  const Outcome outcome =
      in_processes(2, command("retrieval", run("wrong"), 2) + " --gin NetworkArgs.num_layer=3");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("seqfuse: rank 1: "));
  ASSERT_EQ(run_seqfuse(command("retrieval", run("there"), 1)).code, 0);
  // Rank 0 alone looks at the run directory; rank 1 is told.
  const Outcome refused = in_processes(2, command("retrieval", run("there"), 2));
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("seqfuse: rank 0: "));
  EXPECT_THAT(refused.out, HasSubstr("rank 0 failed: "));
}

}  // namespace
}  // namespace seqfuse
