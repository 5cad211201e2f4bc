// SIGINT and SIGTERM in the middle of an evaluation, and twice. (In a step:
// tests/cli/train_test.cpp; to one of several processes: tests/cli/distributed_test.cpp.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/faults/small_run.h"
#include "tests/patience.h"

namespace seqfuse::signal_test {
namespace {

using Clock = std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

void wait_for_steps(const std::string& run, size_t steps) {
  for (int wait = 0; wait < 6000; ++wait) {
    if (std::filesystem::exists(run + "/metrics.jsonl") && metrics_of(run).size() >= steps) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "step " << steps << " was not logged";
}

// Whether the process has a handler for this signal.
bool catches(pid_t pid, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
  }
  return false;
}

TEST(Signal, InAnEvaluationSavesAtOnceAndTheEvaluationIsMadeUpFor) {
  const TemporaryDirectory directory;
  const std::string whole = (directory.path() / "whole").string(),
                    parted = (directory.path() / "parted").string();
  // Evaluating one user per batch would take long; the undisturbed run evaluates a part.
  const std::string slow =
      "--gin TrainerArgs.max_train_iters=4 --gin TrainerArgs.eval_interval=2 --gin "
      "TrainerArgs.ckpt_save_interval=-1 --gin TrainerArgs.eval_batch_size=1";
  const std::string data = (directory.path() / "data").string();
  {
    std::ofstream log(directory.path() / "log.csv");
    log << "user_id,item_id,timestamp,rating\n";
    for (int event = 0; event < 90'000; ++event) {
      log << event / 3 << ',' << event % 15 << ',' << event << ",1\n";
    }
  }
  const Outcome made =
      run_seqfuse(fmt::format("preprocess --dataset-name csv --input {0}/log.csv --output {0}/data "
                              "--time-column timestamp --action-column rating",
                              directory.path().string()));
  ASSERT_EQ(made.code, 0) << made.text();
  const std::string part = slow + " --gin TrainerArgs.max_eval_iters=50";
  const Outcome undisturbed = Background(train_command(whole, part, data)).wait();
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.out;

  Background training(train_command(parted, slow, data));
  wait_for_steps(parted, 2);  // the evaluation comes next
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start = Clock::now();
  ASSERT_EQ(kill(training.pid(), SIGTERM), 0);
  const Outcome stopped = training.wait();
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), kPatience);
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.out;
  EXPECT_THAT(stopped.out, HasSubstr("stopped by SIGTERM after step 2; saved"));
  EXPECT_THAT(names_in(parted + "/checkpoints"), ElementsAre("step_2"));

  const Outcome resumed = Background(train_command(parted, part, data)).wait();
  ASSERT_EQ(resumed.code, 0) << resumed.out;
  expect_same_run(parted, whole, 4);
}

TEST(Signal, ASecondOneOfEitherKindEndsAtOnce) {
  const TemporaryDirectory directory;
  const std::string run = (directory.path() / "run").string();
  // A step that would take hours.
  Background training(
      train_command(run, "--gin TrainerArgs.gradient_accumulation_steps=100000000"));
  training.wait_for("steps of");
  for (int wait = 0; wait < 6000 && !catches(training.pid(), SIGINT); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(kill(training.pid(), SIGINT), 0);
  for (int wait = 0; wait < 6000 && catches(training.pid(), SIGTERM); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(kill(training.pid(), 0), 0) << "the first signal waits for the step";
  const auto start = Clock::now();
  ASSERT_EQ(kill(training.pid(), SIGTERM), 0);
  EXPECT_EQ(training.wait().code, 128 + SIGTERM);
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), kPatience);
}

}  // namespace
}  // namespace seqfuse::signal_test
