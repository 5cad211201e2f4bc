// seqfuse scheme.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/cli/seqfuse_process.h"

namespace seqfuse::scheme_cli_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string printed(const std::string& arguments) {
  const Outcome outcome = run_seqfuse("scheme " + arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.text();
  return outcome.out;
}

TEST(SchemeVerb, PrintsSegments) {
  EXPECT_EQ(printed("6826"), "6826 0 2 1 2 3 4\n");
  EXPECT_EQ(printed("1365"), "1365 0 1 1 4\n");
  EXPECT_EQ(printed("16022"), "16022 0 3 2 6 9 10 13 14\n");
  EXPECT_EQ(printed("21845"), "21845 0 0\n");
  EXPECT_EQ(printed("0001101010101010"), "6826 0 2 1 2 3 4\n");
  EXPECT_EQ(printed("--segments 1-2,3-4"), "6826 0 2 1 2 3 4\n");
  EXPECT_EQ(printed("--segments 1 2 3 4"), "6826 0 2 1 2 3 4\n");
  EXPECT_EQ(printed("--mha --segments 3-7"), "41130 1 1 3 7\n");
  EXPECT_EQ(printed("--segments none"), "10922 0 0\n");
}

TEST(SchemeVerb, DrawsAndReportsWhatIsIllegal) {
  const Outcome outcome = run_seqfuse("scheme 1365 --draw");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(
      outcome.out,
      "1365 0 1 1 4\n[gemm0 bias0+split QK mask] softmax PV transpose gemm1 bias1+residual LN1 "
      "gemm2 bias2+GELU gemm3 bias3+residual LN2\n");
  EXPECT_THAT(outcome.err, HasSubstr("illegal: segment 1-4: no template for GEMM, elementwise, "
                                     "batched GEMM, elementwise"));
  EXPECT_THAT(outcome.err,
              HasSubstr("cut before QK, between [gemm0 bias0+split] (GEMM epilogue) and "
                        "[QK mask] (GEMM epilogue)"));
  EXPECT_THAT(outcome.err,
              HasSubstr("legal form: 6826 0 2 1 2 3 4\n[gemm0 bias0+split] [QK mask]"));
  EXPECT_EQ(run_seqfuse("scheme 6826").err, "");
  EXPECT_THAT(run_seqfuse("scheme 39594").err, HasSubstr("character 0 has no effect"));
}

TEST(SchemeVerb, PrintsJson) {
  const json scheme = json::parse(printed("1365 --json"));
  EXPECT_EQ(scheme["number"].get<int>(), 1365);
  EXPECT_EQ(scheme["characters"].get<std::string>(), "0000010101010101");
  EXPECT_FALSE(scheme["legal"].get<bool>());
  EXPECT_EQ(scheme["segments"].dump(), "[[1,4]]");
  EXPECT_EQ(scheme["illegal"][0]["segment"].dump(), "[1,4]");
  EXPECT_EQ(scheme["illegal"][0]["cuts"][0]["before"].get<std::string>(), "QK");
  EXPECT_EQ(scheme["legal_form"]["number"].get<int>(), 6826);
  EXPECT_EQ(scheme["legal_form"]["templates"].dump(), R"(["GEMM epilogue","GEMM epilogue"])");
  EXPECT_EQ(scheme["program"].get<int>(), 6826 + 32768);
}

TEST(SchemeVerb, ListsEveryScheme) {
  std::istringstream all(printed("--list"));
  std::set<int> legal, programs;
  int next = 32768, number = 0, program = 0;
  for (std::string verdict; all >> number >> verdict >> program; ++next) {
    ASSERT_EQ(number, next);
    ASSERT_EQ(verdict, number == program ? "legal" : "illegal");
    if (number == program) legal.insert(number);
    programs.insert(program);
  }
  EXPECT_EQ(next, 49152);
  EXPECT_EQ(legal, programs);
  std::istringstream lines(printed("--list --legal --json"));
  std::set<int> listed;
  for (std::string line; std::getline(lines, line);) {
    const json scheme = json::parse(line);
    EXPECT_TRUE(scheme["legal"].get<bool>());
    listed.insert(scheme["number"].get<int>());
  }
  EXPECT_EQ(listed, legal);
  const std::string head = run_in_shell(test::binary() + " scheme --list | head -n 1").out;
  EXPECT_THAT(head, HasSubstr("32768 illegal "));
}

TEST(SchemeVerb, HelpFitsAScreenAndErrorsSayWhatToDo) {
  const std::string help = printed("--help");
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 24);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  const auto expect_usage = [](const std::string& arguments, const std::string& text) {
    const Outcome outcome = run_seqfuse("scheme " + arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.text();
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(text));
  };
  expect_usage("", "nothing was given; expected a number such as 6826");
  expect_usage("65536", "65536 is out of range; expected a number from 0 to 65535");
  expect_usage("-1", "character 1 of '-1' is not a digit; expected a number from 0 to 65535");
  expect_usage("01010", "'01010' has 5 characters; expected a number from 0 to 65535 or 16");
  expect_usage("01x0", "character 3 of '01x0' is not a digit");
  expect_usage("''", "nothing was given");
  expect_usage("--segments 2-1", "has 2-1; expected two operators or more from 1 to 15");
  expect_usage("--legal", "--legal requires --list");
  expect_usage("--list --draw", "--list excludes --draw");
  expect_usage("--list 6826", "excludes --list");
  expect_usage("6826 --mha", "--mha requires --segments");
}

}  // namespace
}  // namespace seqfuse::scheme_cli_test
