// seqfuse mask show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/file.h"
#include "tests/cli/seqfuse_process.h"
#include "tests/temporary_directory.h"

namespace seqfuse::mask_cli_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class MaskShow : public testing::Test {
 protected:
  Outcome show(const std::string& arguments) const {
    return run_seqfuse("mask show --output " + file_.string() + " " + arguments);
  }
  nlohmann::json numbers(const std::string& arguments) const {
    const Outcome outcome = show("--json " + arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.text();
    return nlohmann::json::parse(outcome.out);
  }
  TemporaryDirectory directory_;
  const fs::path file_ = directory_.path() / "m.svg";
};

TEST_F(MaskShow, DrawsASlidingWindow) {
  const Outcome outcome = show("--kind sliding --seq 256 --side 64");
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  // 256 * 129 - 64 * 65 allowed of 65536; ten blocks of the diagonals.
  EXPECT_THAT(outcome.out, HasSubstr("256 x 256, 1 sequence: density 44.04 %; 10 of 16 blocks "
                                     "visited, 4 full and 6 partial; 70.5 %"));
  EXPECT_THAT(outcome.out, HasSubstr(file_.string()));
  const std::string svg = read_file(file_);
  EXPECT_THAT(svg, HasSubstr("<svg xmlns"));
  EXPECT_THAT(svg, HasSubstr("M64 64h64v64h-64z"));  // a full block
  EXPECT_THAT(svg, HasSubstr("M64 0h1v1h-1z"));      // query 0 sees key 64, and no more
  EXPECT_THAT(svg, Not(HasSubstr("M192 0")));        // an empty block
  EXPECT_THAT(svg, HasSubstr("sliding: density 44.04 %"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

TEST_F(MaskShow, WritesPngFiles) {
  const fs::path png = directory_.path() / "m.png";
  const Outcome outcome =
      run_seqfuse("mask show --kind bigbird --seq 256 --output " + png.string());
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  EXPECT_EQ(read_file(png).substr(0, 8), "\x89PNG\r\n\x1a\n");
}

TEST_F(MaskShow, CountsEachKind) {
  EXPECT_EQ(numbers("--kind full --seq 100")["allowed"].get<int64_t>(), 10000);
  EXPECT_EQ(numbers("--kind causal --seq 100")["allowed"].get<int64_t>(), 5050);
  EXPECT_EQ(numbers("--kind causal --seq 2 --keys 100")["allowed"].get<int64_t>(), 199);
  EXPECT_EQ(numbers("--kind dilated --seq 9 --side 4 --step 4")["allowed"].get<int64_t>(), 19);
  EXPECT_EQ(numbers("--kind global --seq 10 --global 2")["allowed"].get<int64_t>(), 36);
  EXPECT_EQ(numbers("--kind longformer --seq 10 --side 0 --global 2")["allowed"].get<int64_t>(),
            44);
  EXPECT_EQ(numbers("--kind documents --documents 4,3 --seq 10")["allowed"].get<int64_t>(), 25);
  const auto random = numbers("--kind random --seq 1024 --random 3");
  EXPECT_EQ(random["full"].get<int64_t>(), 3 * 16);
  EXPECT_EQ(random["partial"].get<int64_t>(), 0);
  const auto padded = numbers("--kind sliding,padding --side 1 --lengths 10,4 --seq 10");
  EXPECT_EQ(padded["sequences"].get<int64_t>(), 2);
  EXPECT_EQ(padded["allowed"].get<int64_t>(), 28 + 10);
  EXPECT_DOUBLE_EQ(padded["density"].get<double>(), 38.0 / 200);
}

TEST_F(MaskShow, TheActionMayFollowAnyFlag) {
  const std::string rest = " --seq 10 --json --output " + file_.string();
  for (const char* arguments :
       {"--kind padding show --lengths 10,4", "--kind padding --lengths 10,4 show"}) {
    const Outcome outcome = run_seqfuse("mask " + std::string(arguments) + rest);
    ASSERT_EQ(outcome.code, 0) << outcome.text();
    EXPECT_EQ(nlohmann::json::parse(outcome.out)["allowed"].get<int64_t>(), 116);
  }
}

TEST_F(MaskShow, BigBirdIsTheSameForASeed) {
  const auto drawing = [&](const std::string& arguments) {
    EXPECT_EQ(show("--kind bigbird --seq 1024 " + arguments).code, 0);
    return read_file(file_);
  };
  const std::string first = drawing("--seed 1");
  EXPECT_EQ(first, drawing(""));
  EXPECT_NE(first, drawing("--seed 2"));
}

TEST_F(MaskShow, ALongSequenceIsDrawnInBlocks) {
  const auto counts = numbers("--kind longformer --seq 98304 --side 256 --global 64");
  EXPECT_EQ(counts["blocks"].get<int64_t>(), 1536 * 1536);
  EXPECT_LT(fs::file_size(file_), 1 << 20);
}

TEST_F(MaskShow, HelpFitsAScreenAndErrorsSayWhatToDo) {
  const Outcome help = run_seqfuse("mask --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 40);
  std::istringstream lines(help.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  const auto expect_usage = [&](const std::string& arguments, const std::string& text) {
    const Outcome outcome = show(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(text));
  };
  expect_usage("--kind bigbrid --seq 64", "unknown kind 'bigbrid' (did you mean 'bigbird'?)");
  expect_usage("--kind sliding --seq 64 --side -1", "-1 is not a whole number of 0 or more");
  expect_usage("--kind padding --seq 64",
               "--kind padding needs --lengths, such as --lengths 64,32");
  expect_usage("--kind padding --seq 64 --lengths 65", "expected at most 64 and 64");
  expect_usage("--kind documents --seq 64", "needs --documents");
  expect_usage("--kind full --seq 64 --sequence 1", "--sequence is 1; expected 0 to 0");
  expect_usage("--kind full", "--seq is required");
  EXPECT_EQ(run_seqfuse("mask draw --kind full --seq 64").code, 2);
  EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace seqfuse::mask_cli_test
