// kill -9 at random moments: the newest checkpoint always loads, and the weights end up the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include "base/random.h"
#include "tests/faults/preload.h"
#include "tests/faults/small_run.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::kill_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using testing::AnyOf;
using testing::ElementsAre;

// Rows of 8 of the 16 ids of items: every step evicts some.
constexpr const char* kDynamicItems =
    "--gin item/DynamicEmbeddingArgs.feature_names=['item'] "
    "--gin item/DynamicEmbeddingArgs.table_name='item' "
    "--gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=8 "
    "--gin RetrievalArgs.num_negatives=1 --gin TrainerArgs.train_batch_size=1 "
    "--gin DatasetArgs.max_history_seqlen=3";

int64_t kills_wanted() {
  const char* wanted = std::getenv("SEQFUSE_FAULT_KILLS");
  if (wanted != nullptr) return std::atoll(wanted);
  return kSanitized ? 10 : 100;
}

bool has_half_written(const std::string& checkpoints) {
  for (const std::string& name : names_in(checkpoints)) {
    if (name.find(".tmp-") != std::string::npos) return true;
  }
  return false;
}

double seconds_of(const std::string& run, const std::string& more) {
  const auto start = Clock::now();
  const Outcome outcome = Background(train_command(run, more)).wait();
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  return Seconds(Clock::now() - start).count();
}

// more: arguments of the runs.
void kill_at_any_moment(int64_t wanted, const std::string& more) {
  const TemporaryDirectory directory;
  const std::string undisturbed = (directory.path() / "undisturbed").string();
  // The duration of a run, and of one without any step (the finished run, resumed).
  const double life = seconds_of(undisturbed, more), start = seconds_of(undisturbed, more);

  Random random(2026);
  int64_t kills = 0, half_written = 0, before_any = 0, runs = 0;
  const auto first_kill = Clock::now();
  for (bool ended = true; kills < wanted || !ended;) {
    const std::string run = fmt::format("{}/run{}", directory.path().string(), runs);
    int64_t newest_step = 0;
    for (ended = false; !ended;) {
      Background training(train_command(run, more));
      if (kills < wanted) {
        // A quarter more than the remaining time, so that some runs finish.
        const double left = start + (life - start) * static_cast<double>(40 - newest_step) / 40;
        const double moment = 1.25 * left * static_cast<double>(random.below(1'000'000)) / 1e6;
        std::this_thread::sleep_for(Seconds(moment));
        kill(training.pid(), SIGKILL);
      }
      const Outcome outcome = training.wait();
      ended = outcome.code == 0;
      if (!ended) {
        ASSERT_EQ(outcome.code, 128 + SIGKILL) << outcome.out;
        ++kills;
        half_written += has_half_written(run + "/checkpoints") ? 1 : 0;
      }
      const auto newest = training::newest_checkpoint(run);
      if (!newest) {
        ++before_any;
        continue;
      }
      const training::Checkpoint checkpoint = training::load_checkpoint(*newest);
      EXPECT_GE(checkpoint.step, newest_step) << "a checkpoint was lost";
      newest_step = checkpoint.step;
    }
    expect_same_run(run, undisturbed);
    // No half-written files are left. There is one more checkpoint than ckpt_keep if the last kill
    // came before its removal.
    const auto checkpoints = names_in(run + "/checkpoints");
    EXPECT_THAT(checkpoints, AnyOf(ElementsAre("step_39", "step_40"),
                                   ElementsAre("step_38", "step_39", "step_40")));
    EXPECT_EQ(names_in(run), names_in(undisturbed));
    fs::remove_all(run);
    ++runs;
  }
  const double seconds = Seconds(Clock::now() - first_kill).count();
  std::cout << fmt::format(
      "{} kills in {:.0f} s over {} runs of {:.1f} s: {} while a checkpoint was half written, {} "
      "before the first was whole\n",
      kills, seconds, runs, life, half_written, before_any);
  testing::Test::RecordProperty("kills", std::to_string(kills));
  if (wanted >= 100) {
    EXPECT_GT(half_written, 0) << "no moment was in the middle of a checkpoint";
  }
}

TEST(Kill, AtAnyMomentLeavesAWholeCheckpointAndTheSameEnd) {
  kill_at_any_moment(kills_wanted(), "");
}

TEST(Kill, DynamicTablesGoOnWithTheSameRowsAndEvictions) {
  kill_at_any_moment(std::max<int64_t>(1, kills_wanted() / 5), kDynamicItems);
}

}  // namespace
}  // namespace seqfuse::kill_test
