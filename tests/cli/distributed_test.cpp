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
#include "tests/cli/distributed_run.h"
#include "tests/paths.h"
#include "tests/patience.h"
#include "tests/temporary_directory.h"

namespace seqfuse::distributed_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

std::vector<std::string> torchrun(int size, const std::string& arguments) {
  return words_of(
      fmt::format("{} -m torch.distributed.run --standalone --no-python --nproc_per_node {} {} {}",
                  SEQFUSE_PYTHON, size, test::binary(), arguments));
}

class Distributed : public DistributedRun {};

TEST_F(Distributed, TwoAndThreeProcessesHaveTheLossesAndMetricsOfOne) {
  for (const std::string task : {"retrieval", "ranking"}) {
    const std::string one = run(task + "1");
    ASSERT_EQ(run_seqfuse(command(task, one, 1)).code, 0);
    for (const int size : {2, 3}) {
      const std::string several = run(task + std::to_string(size));
      // The assignment of users makes no difference.
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
  ASSERT_EQ(Background(words_of(test::binary() + " " + command("retrieval", run("one"), 1) + more))
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
      if (arguments.starts_with(test::binary()) && arguments.find(run) != std::string::npos &&
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

// A complete checkpoint: incomplete ones have "tmp" in their names. Checkpoints come and go, so
// take any.
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
    // Checkpoints are rare, so that rank 0 is waiting, not saving, when rank 1 dies.
    Background job(torchrun(2, command("retrieval", path, 2) +
                                   " --gin TrainerArgs.max_train_iters=1000000 --gin "
                                   "TrainerArgs.ckpt_save_interval=200"));
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
    EXPECT_LT(seconds, kPatience);
    EXPECT_THAT(outcome.out, HasSubstr(signal == SIGKILL ? "rank 1 (process"
                                                         : "rank 1 has sent no heartbeat for 4 s"));
    // A death may be seen before rank 0 comes to wait for the dead.
    if (signal == SIGKILL)
      EXPECT_THAT(outcome.out, ContainsRegex("rank 0 (waited in |was in step )"));
    else
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
  // Only rank 0 reads the run directory; it tells rank 1.
  const Outcome refused = in_processes(2, command("retrieval", run("there"), 2));
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("seqfuse: rank 0: "));
  EXPECT_THAT(refused.out, HasSubstr("rank 0 failed: "));
}

}  // namespace
}  // namespace seqfuse::distributed_test
