// A batch of recommendations on a full disk, and stopped by a signal: the old file stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/faults/small_disk.h"
#include "tests/faults/small_run.h"

namespace seqfuse::recommend_batch_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class BatchFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    const Outcome outcome = Background(train_command(run())).wait();
    ASSERT_EQ(outcome.code, 0) << outcome.out;
  }
  static void TearDownTestSuite() { delete directory_; }

  static std::string run() { return (directory_->path() / "run").string(); }

  // Histories of this many users, of one event each.
  static std::string histories(int users) {
    std::string text = "user,item\n";
    for (int u = 0; u < users; ++u) text += fmt::format("user-{},{}\n", u, u % 15);
    return text;
  }

  static std::vector<std::string> command(const std::string& users, const std::string& output) {
    return {test::binary(), "recommend", run(),      "--users", users,
            "--batch-size", "100",       "--output", output};
  }

  static inline TemporaryDirectory* directory_ = nullptr;
};

TEST_F(BatchFaults, AFullDiskLeavesTheOldFile) {
  SmallDisk disk(1 << 20);
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  const TemporaryDirectory inputs;
  const std::string users = (inputs.path() / "histories.csv").string();
  std::ofstream(users) << histories(6000);  // 60,000 rows of more than 20 bytes
  for (const std::string ending : {"csv", "jsonl", "parquet"}) {
    const std::string output = disk.path() + "/recommendations." + ending;
    std::ofstream(output) << "those of yesterday";
    const auto space = static_cast<int64_t>(std::filesystem::space(disk.path()).available);
    const std::string ballast = disk.path() + "/ballast";
    std::ofstream(ballast) << std::string(static_cast<size_t>(space - (64 << 10)), 'x');
    const Outcome full = Background(command(users, output)).wait();
    EXPECT_EQ(full.code, 1) << full.out;
    EXPECT_THAT(full.out, AllOf(HasSubstr("recommendations." + ending),
                                HasSubstr("No space left on device")));
    EXPECT_EQ(read_file(output), "those of yesterday");
    EXPECT_THAT(names_in(disk.path()), ElementsAre("ballast", "recommendations." + ending));
    std::filesystem::remove(ballast);
    std::filesystem::remove(output);
  }
}

TEST_F(BatchFaults, ASignalLeavesTheOldFile) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryDirectory outputs;
    // A pipe that stays open: the batch waits for more users when the signal comes.
    const std::string users = (outputs.path() / "users").string();
    const std::string output = (outputs.path() / "recommendations.csv").string();
    std::ofstream(output) << "those of yesterday";
    ASSERT_EQ(mkfifo(users.c_str(), 0600), 0);
    auto arguments = command(users, output);
    arguments.insert(arguments.end(), {"--format", "csv"});
    Background batch(arguments);
    std::ofstream pipe(users);
    pipe << histories(30'000) << std::flush;
    const auto writes = [&] {
      const auto names = names_in(outputs.path().string());
      return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return name.find("recommendations.csv.tmp") == 0 &&
               std::filesystem::file_size(outputs.path() / name) > 1000;
      });
    };
    for (int wait = 0; wait < 6000 && !writes() && !batch.ended(); ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(writes()) << batch.output();
    ASSERT_EQ(kill(batch.pid(), signal), 0);
    const Outcome stopped = batch.wait();
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.out;
    EXPECT_THAT(stopped.out, HasSubstr("recommendations.csv was not written"));
    EXPECT_EQ(read_file(output), "those of yesterday");
    EXPECT_THAT(names_in(outputs.path().string()), ElementsAre("recommendations.csv", "users"));
  }
}

}  // namespace
}  // namespace seqfuse::recommend_batch_test
