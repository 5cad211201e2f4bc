// A batch of recommendations on a full disk, stopped by a signal, killed or damaged: the old file stays
// as it was, and --resume ends with the bytes of an undisturbed batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

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

  static std::vector<std::string> command(const std::string& users, const std::string& output,
                                          const std::string& more = "") {
    std::vector<std::string> words = {test::binary(), "recommend", run(),      "--users", users,
                                      "--batch-size", "100",       "--output", output};
    const std::vector<std::string> others = words_of(more);
    words.insert(words.end(), others.begin(), others.end());
    return words;
  }

  // The bytes of a batch that must succeed.
  static std::string bytes_of(const std::vector<std::string>& command, const std::string& output) {
    const Outcome outcome = Background(command).wait();
    EXPECT_EQ(outcome.code, 0) << outcome.out;
    return outcome.code == 0 ? read_file(output) : outcome.out;
  }

  static inline TemporaryDirectory* directory_ = nullptr;
};

int64_t blocks_in(const std::string& folder) {
  const auto names = names_in(folder);
  return std::count_if(names.begin(), names.end(),
                       [](const std::string& name) { return name.starts_with("block-"); });
}

void wait_for_blocks(const Background& batch, const std::string& folder, int64_t blocks) {
  for (int wait = 0; wait < 6000 && blocks_in(folder) < blocks && !batch.ended(); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_FALSE(batch.ended()) << batch.output();
  ASSERT_GE(blocks_in(folder), blocks);
}

TEST_F(BatchFaults, AFullDiskLeavesTheOldFileAndResumesWhereThereIsSpace) {
  SmallDisk disk(4 << 20);
  if (!disk.why().empty()) GTEST_SKIP() << disk.why();
  const TemporaryDirectory inputs;
  const std::string users = (inputs.path() / "histories.csv").string();
  std::ofstream(users) << histories(2500);  // 25 blocks of 20 kB
  for (const std::string ending : {"csv", "jsonl", "parquet"}) {
    const std::string name = "recommendations." + ending, output = disk.path() + "/" + name;
    const std::string elsewhere = (inputs.path() / name).string();
    const std::string expected = bytes_of(command(users, elsewhere), elsewhere);
    std::ofstream(output) << "those of yesterday";
    const auto space = static_cast<int64_t>(std::filesystem::space(disk.path()).available);
    const std::string ballast = disk.path() + "/ballast";
    std::ofstream(ballast) << std::string(static_cast<size_t>(space - (128 << 10)), 'x');
    const Outcome full = Background(command(users, output)).wait();
    EXPECT_EQ(full.code, 1) << full.out;
    EXPECT_THAT(full.out, AllOf(HasSubstr(name), HasSubstr("No space left on device"),
                                HasSubstr("the same command with --resume goes on")));
    EXPECT_EQ(read_file(output), "those of yesterday");
    EXPECT_THAT(names_in(disk.path()), ElementsAre("ballast", name, name + ".unfinished"));
    // Going on while the disk is still full loses no block.
    const int64_t blocks = blocks_in(output + ".unfinished");
    EXPECT_EQ(Background(command(users, output, "--resume")).wait().code, 1);
    EXPECT_GE(blocks_in(output + ".unfinished"), blocks);
    std::filesystem::remove(ballast);
    EXPECT_TRUE(bytes_of(command(users, output, "--resume"), output) == expected) << ending;
    EXPECT_THAT(names_in(disk.path()), ElementsAre(name));
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
    ASSERT_NO_FATAL_FAILURE(wait_for_blocks(batch, output + ".unfinished", 2));
    ASSERT_EQ(kill(batch.pid(), signal), 0);
    const Outcome stopped = batch.wait();
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.out;
    EXPECT_THAT(stopped.out, AllOf(HasSubstr("recommendations.csv was not written"),
                                   HasSubstr("the same command with --resume goes on")));
    EXPECT_EQ(read_file(output), "those of yesterday");
    EXPECT_THAT(names_in(outputs.path().string()),
                ElementsAre("recommendations.csv", "recommendations.csv.unfinished"));
  }
}

TEST_F(BatchFaults, AKilledBatchGoesOnToTheSameBytes) {
  const TemporaryDirectory directory;
  const auto path = [&](const std::string& name) { return (directory.path() / name).string(); };
  std::ofstream(path("histories.csv")) << histories(20'000);
  for (const std::string ending : {"csv", "parquet"}) {
    const std::string output = path("killed." + ending), folder = output + ".unfinished";
    const std::string expected =
        bytes_of(command(path("histories.csv"), path("whole." + ending)), path("whole." + ending));
    for (const int blocks : {10, 20}) {  // kills the first batch, then the one that goes on
      Background batch(command(path("histories.csv"), output, blocks > 10 ? "--resume" : ""));
      ASSERT_NO_FATAL_FAILURE(wait_for_blocks(batch, folder, blocks));
      ASSERT_EQ(kill(batch.pid(), SIGKILL), 0);
      EXPECT_EQ(batch.wait().code, 128 + SIGKILL);
      EXPECT_FALSE(std::filesystem::exists(output));
    }
    const Outcome forgotten = Background(command(path("histories.csv"), output)).wait();
    EXPECT_EQ(forgotten.code, 2);
    EXPECT_THAT(forgotten.out, HasSubstr("go on with --resume, or remove it"));
    // A power cut damages one block, and cuts another off.
    write_file_atomically(folder + "/block-00000003", "nonsense");
    std::string cut = read_file(folder + "/block-00000007");
    write_file_atomically(folder + "/block-00000007", cut.substr(0, cut.size() - 1));
    std::ofstream(folder + "/output") << "what a killed batch began to write";
    EXPECT_TRUE(bytes_of(command(path("histories.csv"), output, "--resume"), output) == expected)
        << ending;
    EXPECT_FALSE(std::filesystem::exists(folder));
  }
}

TEST_F(BatchFaults, ResumingWithOtherOptionsIsRefusedByName) {
  const TemporaryDirectory directory;
  const auto path = [&](const std::string& name) { return (directory.path() / name).string(); };
  std::ofstream(path("users.csv")) << histories(5000);
  std::ofstream(path("others.csv")) << histories(450);
  std::ofstream(path("only.txt")) << "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
  const std::string output = path("out.csv"), folder = output + ".unfinished";
  Background batch(command(path("users.csv"), output, "--top-k 4"));
  ASSERT_NO_FATAL_FAILURE(wait_for_blocks(batch, folder, 4));
  ASSERT_EQ(kill(batch.pid(), SIGKILL), 0);
  batch.wait();
  const int64_t kept = blocks_in(folder);
  for (const auto& [users, flags, difference] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"others.csv", "--top-k 4",
            "--users: " + path("users.csv") + " before, " + path("others.csv")},
           {"users.csv", "--top-k 3", "--top-k: 4 before, 3 now"},
           {"users.csv", "--top-k 4 --include-seen", "--exclude-seen: yes before, no now"},
           {"users.csv", "--top-k 4 --only " + path("only.txt"),
            "--only: not given before, " + path("only.txt")},
           {"users.csv", "--top-k 4 --cold-users skip", "--cold-users: error before, skip now"}}) {
    const Outcome refused = Background(command(path(users), output, flags + " --resume")).wait();
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_THAT(refused.out,
                AllOf(HasSubstr("holds blocks of a batch with other options:\n  " + difference),
                      HasSubstr("or remove the folder to start from the beginning")));
    EXPECT_EQ(blocks_in(folder), kept) << "nothing is thrown away";
    EXPECT_FALSE(std::filesystem::exists(output));
  }
  // Rows of the same file may change: their blocks are answered again.
  std::string changed = read_file(path("users.csv"));
  changed.replace(changed.find("user-150,0"), 10, "user-150,9");
  std::ofstream(path("users.csv")) << changed;
  const std::string expected =
      bytes_of(command(path("users.csv"), path("whole.csv"), "--top-k 4"), path("whole.csv"));
  const Outcome resumed =
      Background(command(path("users.csv"), output, "--top-k 4 --resume")).wait();
  ASSERT_EQ(resumed.code, 0) << resumed.out;
  EXPECT_THAT(resumed.out,
              AllOf(HasSubstr("blocks were done before"), HasSubstr("out.csv: 5000 users"),
                    testing::Not(HasSubstr("users/s\n"))));
  EXPECT_TRUE(read_file(output) == expected);
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
