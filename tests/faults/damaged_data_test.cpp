// A dataset file is damaged while a run reads it: the error names it, and the state is saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/faults/small_run.h"

namespace seqfuse::damaged_data_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kEndless =
    "--gin TrainerArgs.max_train_iters=100000000 --gin TrainerArgs.ckpt_save_interval=100000 --gin "
    "TrainerArgs.eval_interval=0";

class DamagedData : public testing::Test {
 protected:
  DamagedData() {
    fs::copy(SmallData::get().data(), data_, fs::copy_options::recursive);
    sequences_ = (fs::path(data_) / "sequences" / names_in(data_ + "/sequences").at(0)).string();
  }

  // Damages the file in the middle of an epoch, then repairs it and resumes.
  void expect_found(const std::function<void()>& damage, const std::string& what) {
    const std::string content = read_file(sequences_);
    Background training(train_command(run_, kEndless, data_));
    for (int wait = 0; wait < 6000 && !has_logged() && !training.ended(); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    damage();
    const Outcome stopped = training.wait();
    EXPECT_EQ(stopped.code, 1) << stopped.out;
    EXPECT_THAT(stopped.out, AllOf(HasSubstr(sequences_ + " is damaged: "), HasSubstr(what),
                                   HasSubstr("found in step "), HasSubstr(" is saved in " + run_)));
    const auto checkpoints = names_in(run_ + "/checkpoints");
    ASSERT_EQ(checkpoints.size(), 1U);
    const int64_t step = std::stoll(checkpoints[0].substr(std::string("step_").size()));
    EXPECT_GT(step, 0);

    // The damage is also detected at the start, until it is repaired.
    const std::string more = fmt::format("--gin TrainerArgs.max_train_iters={}", step + 3);
    const Outcome refused = Background(train_command(run_, more, data_)).wait();
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.out, HasSubstr(sequences_ + " is corrupt"));
    write_file_atomically(sequences_, content);
    const Outcome resumed = Background(train_command(run_, more, data_)).wait();
    ASSERT_EQ(resumed.code, 0) << resumed.out;
    const Outcome whole = Background(train_command(undisturbed_, more, data_)).wait();
    ASSERT_EQ(whole.code, 0) << whole.out;
    EXPECT_TRUE(tensors_of(run_, step + 3) == tensors_of(undisturbed_, step + 3));
  }

  TemporaryDirectory directory_;
  std::string data_ = (directory_.path() / "data").string(),
              run_ = (directory_.path() / "run").string(),
              undisturbed_ = (directory_.path() / "undisturbed").string(), sequences_;

 private:
  bool has_logged() const {
    std::error_code none;
    return fs::file_size(run_ + "/metrics.jsonl", none) > 0 && !none;
  }
};

TEST_F(DamagedData, AFlippedBit) {
  expect_found(
      [&] {
        std::fstream file(sequences_, std::ios::in | std::ios::out | std::ios::binary);
        const auto middle = static_cast<std::streamoff>(fs::file_size(sequences_) / 2);
        file.seekg(middle);
        const char byte = static_cast<char>(file.get() ^ 1);
        file.seekp(middle).put(byte);
      },
      "have changed since it was opened");
}

TEST_F(DamagedData, AFileThatIsCutOff) {
  expect_found([&] { fs::resize_file(sequences_, fs::file_size(sequences_) / 2); },
               "was truncated to");
}

}  // namespace
}  // namespace seqfuse::damaged_data_test
