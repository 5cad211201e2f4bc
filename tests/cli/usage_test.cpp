// Exit codes, the same for all verbs: 2 where the command is wrong, 1 where what it names is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/trained_runs.h"

namespace seqfuse::usage_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Case {
  std::string arguments;
  std::string message;
};

class ExitCodes : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  static void expect(int code, const std::vector<Case>& cases) {
    for (const Case& wrong : cases) {
      const Outcome outcome = run_seqfuse(wrong.arguments + " < /dev/null");
      EXPECT_EQ(outcome.code, code) << wrong.arguments << "\n" << outcome.text();
      EXPECT_THAT(outcome.err, HasSubstr("seqfuse: ")) << wrong.arguments;
      EXPECT_THAT(outcome.err, HasSubstr(wrong.message)) << wrong.arguments;
    }
  }

  TemporaryDirectory directory_;
};

TEST_F(ExitCodes, UnknownFlagsAndMissingOnesAreTwoForEveryVerb) {
  for (const std::string verb :
       {"doctor", "preprocess", "synthesize", "train", "evaluate", "report", "recommend", "similar",
        "export", "generate", "perplexity", "encode", "certify", "tune", "mask", "scheme",
        "predict", "bench"}) {
    const Outcome outcome = run_seqfuse(verb + " --no-such-flag");
    EXPECT_EQ(outcome.code, 2) << verb << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, StartsWith("seqfuse: " + verb + ": "));
    EXPECT_THAT(outcome.err, HasSubstr("`seqfuse " + verb + " --help` lists the options"));
    EXPECT_EQ(run_seqfuse(verb + " --help").code, 0) << verb;
  }
  expect(2, {{"evaluat run", "did you mean 'evaluate'?"}});
}

TEST_F(ExitCodes, TwoWhereTheCommandIsWrong) {
  const TrainedRuns& runs = TrainedRuns::get();
  const std::string data = runs.data(), run = runs.retrieval(), out = path("out");
  expect(2,
         {{"preprocess --input '' --output " + out, "is blank"},
          {"preprocess --dataset-name nope --input " + runs.log() + " --output " + out, "known: "},
          {"preprocess --time-column timestamp --time-format %H --input " + runs.log() +
               " --output " + out,
           "expected a year"},
          {"train retrieval --gin-config-file " + run +
               "/operative_config.gin --gin Nope.x=1 --data " + data + " --output " + out,
           "Nope"},
          {"recommend " + run + " --user nobody", "is not among the 40 users"},
          {"recommend " + run + " --history item0,nothing", "item 'nothing' is not among"},
          {"recommend " + run + " --user u1 --checkpoint step_77", "step_77"},
          {"recommend " + run + " --user u1 --top-k 0", "--top-k"},
          {"recommend " + run + " --users all", "--users needs --output"},
          {"recommend " + run + " --users all --output " + out + ".xlsx", "end its name in .csv"},
          {"recommend " + runs.ranking() + " --user u1", "--candidates"},
          {"similar " + run + " --item nothing", "is not among the 15 items"},
          {"similar " + runs.ranking() + " --item item1", "is a ranking run"},
          {"export " + run + " --items --output " + out + ".csv", "must end in .parquet or .npy"},
          {"report " + run, "-o"}});
}

TEST_F(ExitCodes, OneWhereWhatItNamesIsMissingOrWrong) {
  const TrainedRuns& runs = TrainedRuns::get();
  const std::string data = runs.data(), run = runs.retrieval(), out = path("out"),
                    nowhere = path("nowhere"), junk = path("junk.csv");
  std::ofstream(junk) << "junk\n1\n";
  std::ofstream(path("users.csv")) << "user,items\na,item1\nb,nothing\n";
  expect(
      1,
      {{"preprocess --input " + nowhere + " --output " + out, "does not exist"},
       {"preprocess --input " + junk + " --output " + out, "junk.csv has no column 'user_id'"},
       {"preprocess --dry-run --input " + junk, "has no column"},
       {"preprocess --extend " + data + " --input " + runs.log(), "its events would count twice"},
       {"train retrieval --gin-config-file " + nowhere + " --data " + data + " --output " + out,
        nowhere},
       {"train retrieval --gin-config-file " + run + "/operative_config.gin --data " + nowhere +
            " --output " + out,
        "is not a dataset"},
       {"evaluate " + nowhere, "is not a run directory"},
       {"evaluate " + run + " --data " + runs.other_data(), "another vocabulary"},
       {"report " + nowhere + " -o " + path("report.html"), "is not a run directory"},
       {"report " + run + " --data " + runs.other_data() + " -o " + path("report.html"),
        "another dataset"},
       {"recommend " + nowhere + " --user u1", "is not a run directory"},
       {"recommend " + run + " --users " + nowhere + ".csv --output " + out + ".csv",
        "does not exist"},
       {"recommend " + run + " --users " + path("users.csv") + " --output " + out + ".csv",
        "users.csv:3: item 'nothing' is not among"},
       {"similar " + nowhere + " --item item1", "is not a run directory"},
       {"export " + run + " --items --output " + nowhere + "/x.npy", "No such file or directory"},
       {"generate " + nowhere + " --ids 1", "is not a folder"},
       {"perplexity " + nowhere + " --ids-file " + junk, "is not a folder"},
       {"encode " + nowhere + " --text-file " + junk + " --output " + out + ".npy", nowhere},
       {"certify " + nowhere + " --ids 1,2 --eps 0.1", nowhere},
       {"bench decode " + nowhere, "is not a folder"},
       {"predict --model " + nowhere + " 6826", nowhere}});
}

}  // namespace
}  // namespace seqfuse::usage_test
