// The disk fills up while a checkpoint is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/faults/small_disk.h"
#include "tests/faults/small_run.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::disk_full_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kDisk = 4 << 20;

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.why().empty()) GTEST_SKIP() << disk_.why();
    const Outcome whole = Background(train_command(undisturbed(), kManyCheckpoints)).wait();
    ASSERT_EQ(whole.code, 0) << whole.out;
    int64_t bytes = 0;
    for (const auto& [name, content] : tensors_of(undisturbed(), 40)) bytes += std::ssize(content);
    // Room for a few checkpoints.
    const auto free = static_cast<int64_t>(fs::space(disk_.path()).available);
    std::ofstream(ballast()) << std::string(static_cast<size_t>(free - 6 * bytes), 'x');
  }

  // More than the free space, but less than the whole disk.
  static constexpr const char* kManyCheckpoints = "--gin TrainerArgs.ckpt_keep=20";

  std::string undisturbed() const { return (directory_.path() / "undisturbed").string(); }
  std::string run() const { return disk_.path() + "/run"; }
  std::string ballast() const { return disk_.path() + "/ballast"; }

  // There are only complete checkpoints, each of which loads.
  void expect_whole_checkpoints() const {
    const auto names = names_in(run() + "/checkpoints");
    EXPECT_GE(names.size(), 2U);
    EXPECT_THAT(names, Each(Not(HasSubstr("tmp"))));
    for (const std::string& name : names) {
      EXPECT_NO_THROW(training::load_checkpoint(run() + "/checkpoints/" + name)) << name;
    }
  }

  TemporaryDirectory directory_;
  SmallDisk disk_{kDisk};
};

TEST_F(DiskFull, StopsSaysWhatIsMissingAndGoesOnWhenThereIsRoom) {
  const Outcome full = Background(train_command(run(), kManyCheckpoints)).wait();
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.out,
              AllOf(HasSubstr("the checkpoint of step "), HasSubstr("No space left on device"),
                    HasSubstr(run() + "/checkpoints, where "), HasSubstr("B are free"),
                    HasSubstr("the last checkpoint is " + run() + "/checkpoints/step_"),
                    HasSubstr("on_checkpoint_error = 'continue'")));
  expect_whole_checkpoints();
  fs::remove(ballast());
  const Outcome resumed = Background(train_command(run(), kManyCheckpoints)).wait();
  ASSERT_EQ(resumed.code, 0) << resumed.out;
  expect_same_run(run(), undisturbed());
}

TEST_F(DiskFull, TrainsOnIfToldSoAndSavesOnceThereIsRoom) {
  const std::string whole_run = (directory_.path() / "longer").string();
  const std::string longer = " --gin TrainerArgs.max_train_iters=1000";
  const Outcome whole =
      Background(train_command(whole_run, std::string("--gin TrainerArgs.ckpt_keep=1") + longer))
          .wait();
  ASSERT_EQ(whole.code, 0) << whole.out;
  Background training(train_command(
      run(), kManyCheckpoints + longer + " --gin TrainerArgs.on_checkpoint_error='continue'"));
  training.wait_for("training goes on");
  fs::remove(ballast());
  const Outcome ended = training.wait();
  ASSERT_EQ(ended.code, 0) << ended.out;
  expect_whole_checkpoints();
  expect_same_run(run(), whole_run, 1000);
}

TEST_F(DiskFull, TheLastCheckpointIsNotGivenUp) {
  const Outcome full =
      Background(train_command(run(), std::string(kManyCheckpoints) +
                                          " --gin TrainerArgs.on_checkpoint_error='continue'"))
          .wait();
  EXPECT_EQ(full.code, 1);
  EXPECT_THAT(full.out, AllOf(HasSubstr("training goes on"),
                              HasSubstr("the checkpoint of step 40 was not saved"),
                              HasSubstr("make room there, then --resume")));
  expect_whole_checkpoints();
  fs::remove(ballast());
  const Outcome resumed = Background(train_command(run(), kManyCheckpoints)).wait();
  ASSERT_EQ(resumed.code, 0) << resumed.out;
  expect_same_run(run(), undisturbed());
}

}  // namespace
}  // namespace seqfuse::disk_full_test
