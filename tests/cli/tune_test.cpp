// seqfuse tune on the CPU, and plans in seqfuse encode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "tests/cli/background_process.h"
#include "tests/cli/bert_folder.h"
#include "tests/cli/seqfuse_process.h"
#include "tuning/database.h"

namespace seqfuse::tune_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class Tune : public testing::Test {
 protected:
  void SetUp() override { bert_.write(folder_.path()); }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string arguments(const std::string& more, const std::string& plan = "plan.json") const {
    return "tune " + folder_.path().string() + " --device cpu --database " + path("tune.db") +
           " --output " + path(plan) + " " + more;
  }
  Background in_background(const std::string& more, const std::string& plan) const {
    return Background(words_of(test::binary() + " " + arguments(more, plan)));
  }
  Outcome tune(const std::string& more) const { return run_seqfuse(arguments(more)); }
  Outcome encode(const std::string& more) const {
    return run_seqfuse("encode " + folder_.path().string() + " --device cpu --plan " +
                       path("plan.json") + " --output " + path("x.npy") + " " + more);
  }
  void expect_refusal(const std::string& more, int code, const std::string& message) const {
    const Outcome outcome = tune(more);
    EXPECT_EQ(outcome.code, code) << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(path("plan.json")));
  }

  TemporaryDirectory folder_;
  const BertFolder bert_{7};
};

TEST_F(Tune, FindsAPlanThatEncodeRuns) {
  const Outcome outcome =
      tune("--batch 2 --seq 3 --mask sliding:1 --budget 3 --search random --seed 2 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["programs"].get<int>(), 3);
  EXPECT_EQ(result["wrong"].get<int>() + result["failed"].get<int>(), 0) << outcome.text();
  EXPECT_LE(result["milliseconds"].get<double>(), result["default_milliseconds"].get<double>());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("3/3: best "), HasSubstr("default")));
  const tuning::Database database(path("tune.db"), tuning::Database::Access::read);
  EXPECT_GE(database.count(), 3);
  EXPECT_EQ(database.settings()[0].mask, "sliding:1");

  std::ofstream(path("ids.txt")) << "4,5,6\n1,2,3\n2,4,6\n";
  const Outcome planned = encode("--mask sliding:1 --json --ids " + path("ids.txt"));
  ASSERT_EQ(planned.code, 0) << planned.text();
  EXPECT_EQ(json::parse(planned.out)["planned_batches"].get<int>(), 1);
  EXPECT_EQ(json::parse(planned.out)["batches"].get<int>(), 2);
  const Outcome other_mask = encode("--ids " + path("ids.txt"));
  EXPECT_EQ(other_mask.code, 2);
  EXPECT_THAT(other_mask.err, HasSubstr("the plan is for the mask sliding:1, and --mask is none"));
  const Outcome other_shape = encode("--mask sliding:1 --ids 4,5");
  EXPECT_EQ(other_shape.code, 2);
  EXPECT_THAT(other_shape.err,
              HasSubstr("the plan is for 2 sequences of 3 tokens, and the batch has 1 of 2 to 2"));

  json plan = json::parse(read_file(path("plan.json")));
  plan["card"] = "NVIDIA H200";
  std::ofstream(path("plan.json")) << plan;
  const Outcome other_card = encode("--mask sliding:1 --ids " + path("ids.txt"));
  EXPECT_EQ(other_card.code, 2);
  EXPECT_THAT(other_card.err, HasSubstr("for the card 'NVIDIA H200', and this is 'cpu'"));
  std::ofstream(path("plan.json")) << "{}";
  const Outcome damaged = encode("--mask sliding:1 --ids 4,5");
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("plan.json is no plan of `seqfuse tune`"));
}

TEST_F(Tune, ResumesAndSharesItsDatabase) {
  Background other = in_background("--batch 1 --seq 4 --budget 2", "other.json");
  const Outcome first = tune("--batch 1 --seq 4 --budget 2 --json");
  ASSERT_EQ(first.code, 0) << first.text();
  EXPECT_EQ(other.wait().code, 0);
  EXPECT_TRUE(fs::exists(path("other.json")));
  const Outcome second = tune("--batch 1 --seq 4 --budget 2 --resume --json");
  ASSERT_EQ(second.code, 0) << second.text();
  EXPECT_EQ(json::parse(second.out)["segments"].get<int>(), 0);
  EXPECT_EQ(json::parse(second.out)["programs"].get<int>(), 0);
  EXPECT_GE(json::parse(second.out)["reused"].get<int>(), 33);
}

TEST_F(Tune, SecondsEndItOnceTheDefaultIsMeasured) {
  const Outcome outcome = tune("--batch 1 --seq 4 --seconds 0.01 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.text();
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["programs"].get<int>(), 1);
  EXPECT_EQ(result["segments"].get<int>(), 0);
  EXPECT_FALSE(result["stopped"].get<bool>());
  EXPECT_TRUE(fs::exists(path("plan.json")));
}

TEST_F(Tune, CtrlCKeepsWhatWasMeasuredAndPrintsTheBest) {
  Background search = in_background("--batch 1 --seq 4 --exhaustive", "plan.json");
  search.wait_for("[tune] 1/720: best ");
  kill(search.pid(), SIGINT);
  const Outcome outcome = search.wait();
  EXPECT_EQ(outcome.code, 130) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("plan.json: scheme "), HasSubstr("--resume goes on")));
  EXPECT_TRUE(fs::exists(path("plan.json")));
  const tuning::Database database(path("tune.db"), tuning::Database::Access::read);
  EXPECT_GE(database.count(), 1);
}

TEST_F(Tune, WrongRequestsAreRefusedBeforeAnythingIsMeasured) {
  expect_refusal("--batch 1 --seq 4 --budget 0", 2, "0 is not a whole number of 1 or more");
  expect_refusal("--batch 1 --seq 4 --mask slidin:3", 2, "there is no kind 'slidin'");
  expect_refusal("--batch 1 --seq 13", 2, "--seq is 13; this model takes at most 12 tokens");
  expect_refusal("--batch 1 --seq 4 --search xgboost", 2, "xgboost");
  std::ofstream(path("tune.db")) << "no database at all, but some text that is long enough";
  expect_refusal("--batch 1 --seq 4", 1, "tune.db");
}

TEST_F(Tune, HelpFitsAScreen) {
  const Outcome help = run_seqfuse("tune --help");
  EXPECT_EQ(help.code, 0);
  EXPECT_LE(std::count(help.out.begin(), help.out.end(), '\n'), 40);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--exhaustive"), HasSubstr("--resume")));
}

}  // namespace
}  // namespace seqfuse::tune_cli_test
