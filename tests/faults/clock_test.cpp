// A wall clock that jumps by up to a year, both ways, each time it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/faults/preload.h"
#include "tests/faults/small_run.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::clock_test {
namespace {

using testing::HasSubstr;

class Clock : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers must be loaded first";
  }

  std::string undisturbed() const { return (directory_.path() / "undisturbed").string(); }
  std::string run() const { return (directory_.path() / "run").string(); }

  // Seconds of training increase, and rates are plausible for a small run.
  void expect_sane_figures() const {
    std::ifstream file(run() + "/metrics.jsonl");
    double seconds = 0;
    int lines = 0;
    for (std::string text; std::getline(file, text);) {
      const auto line = nlohmann::json::parse(text);
      if (!line.contains("seconds")) continue;
      ++lines;
      EXPECT_GT(line["seconds"].get<double>(), seconds);
      seconds = line["seconds"];
      const double rate = line["tokens_per_second"];
      EXPECT_GT(rate, 1);
      EXPECT_LT(rate, 1e8);
    }
    EXPECT_EQ(lines, 40);
    EXPECT_LT(seconds, 300);
  }

  TemporaryDirectory directory_;
  const std::map<std::string, std::string> jumps_ = preloaded(SEQFUSE_CLOCK_JUMPS);
};

TEST_F(Clock, TheLibraryOfThisTestMakesItJump) {
  const std::string twice = "date +%Y-%m-%d; date +%Y-%m-%d; date +%Y-%m-%d";
  const Outcome jumping = Background({"/bin/sh", "-c", twice}, jumps_).wait();
  ASSERT_EQ(jumping.code, 0);
  const Outcome steady = Background({"/bin/sh", "-c", twice}).wait();
  EXPECT_NE(jumping.out, steady.out);
}

TEST_F(Clock, JumpsChangeNothing) {
  const Outcome whole = Background(train_command(undisturbed())).wait();
  ASSERT_EQ(whole.code, 0) << whole.out;
  const Outcome first =
      Background(train_command(run(), "--tensorboard --gin TrainerArgs.max_train_iters=20"), jumps_)
          .wait();
  ASSERT_EQ(first.code, 0) << first.out;
  // The choice of the newest checkpoint does not depend on file times.
  std::filesystem::last_write_time(run() + "/checkpoints/step_20", {});
  EXPECT_THAT(training::newest_checkpoint(run())->string(), HasSubstr("step_20"));
  const Outcome second = Background(train_command(run(), "--tensorboard"), jumps_).wait();
  ASSERT_EQ(second.code, 0) << second.out;
  EXPECT_THAT(second.out, HasSubstr("step_20"));
  // The first part ended with an evaluation that the uninterrupted run does not have.
  EXPECT_TRUE(tensors_of(run(), 40) == tensors_of(undisturbed(), 40));
  expect_sane_figures();
}

TEST_F(Clock, ProcessesOfOneJobHearOfEachOther) {
  const Outcome outcome =
      in_processes(2, train_arguments(run()) + " --gin TrainerArgs.rank_timeout_seconds=4", jumps_);
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("2 processes, gloo"));
  expect_sane_figures();
}

}  // namespace
}  // namespace seqfuse::clock_test
