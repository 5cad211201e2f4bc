// A batch of recommendations on a full disk, and stopped by a signal: the old file stays as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
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
  std::ofstream(users) << histories(6000);  // 60,000 rows; as Parquet 57 kB
  for (const std::string ending : {"csv", "jsonl", "parquet"}) {
    const std::string output = disk.path() + "/recommendations." + ending;
    std::ofstream(output) << "those of yesterday";
    const auto space = static_cast<int64_t>(std::filesystem::space(disk.path()).available);
    const std::string ballast = disk.path() + "/ballast";
    std::ofstream(ballast) << std::string(static_cast<size_t>(space - (16 << 10)), 'x');
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
  const TemporaryDirectory inputs;
  const std::string users = (inputs.path() / "histories.csv").string();
  std::ofstream(users) << histories(1'000'000);
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryDirectory outputs;
    const std::string output = (outputs.path() / "recommendations.csv").string();
    std::ofstream(output) << "those of yesterday";
    Background batch(command(users, output));
    const auto writes = [&] {
      for (const std::string& name : names_in(outputs.path().string())) {
        std::error_code ignored;
        if (name.starts_with("recommendations.csv.tmp") &&
            std::filesystem::file_size(outputs.path() / name, ignored) > 1000) {
          return true;
        }
      }
      return false;
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
    EXPECT_THAT(names_in(outputs.path().string()), ElementsAre("recommendations.csv"));
  }
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

TEST_F(BatchFaults, ASignalEndsTheWaitForMoreUsers) {
  const TemporaryDirectory directory;
  const std::string users = (directory.path() / "users").string();
  ASSERT_EQ(mkfifo(users.c_str(), 0600), 0);
  auto arguments = command(users, (directory.path() / "recommendations.csv").string());
  arguments.insert(arguments.end(), {"--format", "csv"});
  Background batch(arguments);
  std::ofstream pipe(users);
  pipe << histories(3) << std::flush;
  for (int wait = 0; wait < 6000 && !catches(batch.pid(), SIGINT) && !batch.ended(); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_EQ(kill(batch.pid(), SIGINT), 0);
  EXPECT_EQ(batch.wait().code, 130);
  EXPECT_THAT(names_in(directory.path().string()), ElementsAre("users"));
}

}  // namespace
}  // namespace seqfuse::recommend_batch_test
