#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/paths.h"
#include "tests/temporary_directory.h"

namespace seqfuse::synthesize_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Outcome run(const std::string& arguments) {
  return run_seqfuse("synthesize " + arguments);
}

class SynthesizeCommand : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const fs::path root_ = directory_.path();
};

TEST_F(SynthesizeCommand, WritesAndReportsWhatItPlanted) {
  const fs::path out = root_ / "log";
  const Outcome outcome =
      run("--like kuairand-1k --users 20 --events 3000 --seed 9 --output " + out.string());
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_THAT(outcome.text(), HasSubstr("20 users"));
  EXPECT_THAT(outcome.text(), HasSubstr("3000 events"));
  EXPECT_THAT(outcome.text(), HasSubstr("is_profile_enter"));
  EXPECT_THAT(outcome.text(), HasSubstr("pure noise"));
  const auto json = nlohmann::json::parse(read_file(out / "synthesis.json"));
  EXPECT_EQ(json["like"], "kuairand-1k");
  EXPECT_EQ(json["seed"], 9);
  EXPECT_EQ(json["labels"].size(), 8);
  EXPECT_EQ(json["labels"][7]["learnable"], false);
  EXPECT_TRUE(fs::exists(out / "data/user_features_1k.csv"));
}

TEST_F(SynthesizeCommand, ReplacesAFolderOnlyWhenForced) {
  const std::string out = (root_ / "log").string();
  const std::string arguments = "--like ml-1m --users 5 --output " + out;
  ASSERT_EQ(run(arguments).code, 0);
  const Outcome refused = run(arguments + " --seed 2");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text(), HasSubstr("exists: give another --output, or --force"));
  const std::string before = read_file(root_ / "log/ratings.dat");
  EXPECT_EQ(run(arguments + " --seed 2 --force").code, 0);
  EXPECT_NE(read_file(root_ / "log/ratings.dat"), before);
}

TEST_F(SynthesizeCommand, TakesAnEmptyFolderAndReplacesNoOther) {
  fs::create_directory(root_ / "empty");
  EXPECT_EQ(run("--like ml-1m --users 5 --output " + (root_ / "empty").string()).code, 0);
  fs::create_directory(root_ / "precious");
  write_file_atomically(root_ / "precious/thesis.tex", "x");
  const Outcome refused =
      run("--like ml-1m --users 5 --force --output " + (root_ / "precious").string());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text(), HasSubstr("--force replaces nothing else"));
  EXPECT_TRUE(fs::exists(root_ / "precious/thesis.tex"));
}

TEST_F(SynthesizeCommand, UsageErrorsLeaveNothingBehind) {
  const std::string out = " --output " + (root_ / "log").string();
  const Outcome unknown = run("--like kuairand-1kk" + out);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text(), HasSubstr("did you mean 'kuairand-1k'?"));
  EXPECT_EQ(run("--like ml-1m --users many" + out).code, 2);
  EXPECT_EQ(run("--like ml-1m --userz 3" + out).code, 2);
  EXPECT_EQ(run("--like ml-1m").code, 2);
  for (const char* flag : {"--users 0", "--users -3", "--items 0", "--events 0", "--threads 0",
                           "--seed -1", "--length-scale 0"}) {
    const Outcome refused = run("--like ml-1m " + std::string(flag) + out);
    EXPECT_EQ(refused.code, 2) << flag;
    EXPECT_THAT(refused.text(), HasSubstr(std::string(flag).substr(0, 6))) << flag;
  }
  EXPECT_THAT(run("--like ml-1m --users 0" + out).text(),
              HasSubstr("--users is 0; give 1 or more"));
  EXPECT_THAT(run("--like ml-1m --output ' '").text(),
              HasSubstr("--output: the path ' ' is blank"));
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(SynthesizeCommand, AFullDiskIsAnErrorThatLeavesNothingBehind) {
  // A limit of 64 blocks on file sizes simulates a full disk: writing fails in the same way.
  const fs::path out = root_ / "log";
  const std::string command = "trap '' XFSZ; ulimit -f 64; " + test::binary() +
                              " synthesize --like ml-1m --users 300 --output " + out.string() +
                              " 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(("bash -c \"" + command + "\"").c_str())), 1);
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace seqfuse::synthesize_test
