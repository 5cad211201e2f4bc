// seqfuse recommend --users on several processes: the file of one, byte for byte.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/cli/background_process.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::recommend_processes_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RecommendProcesses : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  TemporaryDirectory directory_;
};

TEST_F(RecommendProcesses, WriteTheFileOfOneProcess) {
  std::ofstream users(path("users.txt"));
  for (int u = 0; u < 80; ++u) users << "u" << u % 41 << '\n';  // u40 is unknown, others come again
  users.close();
  for (const auto& [run, who] : std::vector<std::pair<std::string, std::string>>{
           {TrainedRuns::get().retrieval(), "all"},
           {TrainedRuns::get().research(), path("users.txt") + " --cold-users popularity"},
           {TrainedRuns::get().ranking(), "all --candidates item1,item2,item3,item4"}}) {
    const bool all = who.starts_with("all");
    std::string one;
    for (const int size : all ? std::vector{1, 2} : std::vector{1, 2, 3}) {
      const std::string output = path(fmt::format("{}.{}", size, all ? "csv" : "parquet"));
      const Outcome outcome = in_processes(
          size,
          fmt::format("recommend {} --users {} --batch-size 7 --output {}", run, who, output));
      ASSERT_EQ(outcome.code, 0) << outcome.out;
      if (size == 1) {
        one = read_file(output);
        continue;
      }
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[recommend] {} processes, gloo", size)));
      EXPECT_THAT(outcome.out, HasSubstr(all ? ": 40 users" : "came again"));
      EXPECT_TRUE(read_file(output) == one) << run << " " << output;
      EXPECT_FALSE(std::filesystem::exists(output + ".unfinished"));
    }
  }
}

TEST_F(RecommendProcesses, CountWhatAllOfThemMet) {
  std::ofstream(path("users.txt")) << "u1\nu2\ncold1\nu3\nu1\ncold2\n";
  const Outcome outcome = in_processes(
      2, fmt::format("recommend {} --users {} --batch-size 1 --cold-users skip --output {}",
                     TrainedRuns::get().retrieval(), path("users.txt"), path("out.csv")));
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("2 users of whom the model knows nothing, such as 'cold1'"),
                    HasSubstr("1 users came again"), HasSubstr("out.csv: 3 of 5 users")));
}

TEST_F(RecommendProcesses, GoOnWithWhatOneProcessKept) {
  // A wrong row ends the batch when some blocks are done.
  const std::string rows = "user,items\na,item1\nb,item2\nc,item3\nd,item4\n";
  std::ofstream(path("users.csv")) << rows << "e,nothing\n";
  const std::string command =
      fmt::format("recommend {} --users {} --batch-size 1 --output {}",
                  TrainedRuns::get().research(), path("users.csv"), path("out.csv"));
  const Outcome wrong = in_processes(1, command);
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("users.csv:6: item 'nothing'"), HasSubstr("--resume")));
  std::ofstream(path("users.csv")) << rows << "e,item5\n";
  const Outcome two = in_processes(2, command + " --resume");
  ASSERT_EQ(two.code, 0) << two.out;
  EXPECT_THAT(two.out, HasSubstr("2 blocks were done before"));  // of those of the first process
  const std::string resumed = read_file(path("out.csv"));
  ASSERT_EQ(in_processes(1, command).code, 0);
  EXPECT_TRUE(read_file(path("out.csv")) == resumed);
}

TEST_F(RecommendProcesses, EndTogether) {
  std::ofstream(path("users.csv")) << "user,items\na,item1\nb,nothing\n";
  const std::string command = fmt::format("recommend {} --batch-size 1 --output {} --users ",
                                          TrainedRuns::get().retrieval(), path("out.csv"));
  const Outcome wrong = in_processes(2, command + path("users.csv"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("rank 1: " + path("users.csv") + ":3: item 'nothing'"));
  EXPECT_FALSE(std::filesystem::exists(path("out.csv")));
  const Outcome input = in_processes(2, command + "- --format lines");
  EXPECT_EQ(input.code, 2);
  EXPECT_THAT(input.out, HasSubstr("give several a file"));
}

}  // namespace
}  // namespace seqfuse::recommend_processes_test
