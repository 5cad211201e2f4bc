// seqfuse predict, and seqfuse report of measurements, from the command line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/seqfuse_process.h"
#include "tests/tuning/made_up_times.h"
#include "tuning/database.h"

namespace seqfuse::predict_cli_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

const tuning::Setting kSliding = bert_setting(16, 1024, "sliding:32", .0625);
const tuning::Setting kCausal = bert_setting(8, 512, "causal", .5);

// A database of two settings, lines of one, and models of both, made once.
class PredictVerb : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory;
    const auto examples = made_up_examples({kSliding, kCausal}, .01, 1);
    std::ofstream lines(path("times.txt"));
    std::vector<tuning::Measurement> measurements;
    for (size_t i = 0; i < examples.size(); i += 6) {
      const tuning::Example& example = examples[i];
      measurements.push_back(measured(example));
      if (example.setting == kSliding)
        lines << example.scheme.string() << "   " << example.milliseconds << "\n";
    }
    lines.close();
    tuning::Measurement segment = measurements[0], failed = segment;
    segment.scheme.reset();
    failed.status = tuning::Status::timeout;
    failed.milliseconds.reset();
    measurements.push_back(failed);
    for (const fusion::Segment& one : fusion::Scheme::from_number(41130).segments()) {
      segment.segment = one;
      segment.milliseconds = .1;
      measurements.push_back(segment);
    }
    {
      tuning::Database database(path("tune.db"), tuning::Database::Access::write);
      database.add(measurements);
    }
    trained_ =
        run_seqfuse("predict --train " + path("tune.db") + " --folds 3 --model " + path("both"));
    ASSERT_EQ(trained_.code, 0) << trained_.err;
    const auto of_lines =
        run_seqfuse("predict --train " + path("times.txt") +
                    "@16,1024,sliding:32 --folds 3 --json --model " + path("lines"));
    ASSERT_EQ(of_lines.code, 0) << of_lines.err;
    of_lines_ = json::parse(of_lines.out);
  }
  static void TearDownTestSuite() { delete directory_; }

  static std::string path(const std::string& name) { return (directory_->path() / name).string(); }
  static void refused(const std::string& arguments, int code, const std::string& why) {
    const Outcome outcome = run_seqfuse("predict " + arguments);
    EXPECT_EQ(outcome.code, code) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(why)) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }

  static inline TemporaryDirectory* directory_ = nullptr;
  static inline Outcome trained_;
  static inline json of_lines_;
};

TEST_F(PredictVerb, PrintsMillisecondsAndWhetherFast) {
  const Outcome one = run_seqfuse("predict 0100010111011101 --model " + path("lines"));
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_THAT(one.out, MatchesRegex("[0-9.]+ [01]\n"));
  // Nothing fused is slow; attention by hand and epilogues, 41115, is fast.
  const json both =
      json::parse(run_seqfuse("predict 21845 41115 --json --model " + path("lines")).out);
  const double threshold = both["fast_below_milliseconds"];
  ASSERT_EQ(both["predictions"].size(), 2U);
  EXPECT_EQ(both["predictions"][0]["fast"], 0);
  EXPECT_GT(both["predictions"][0]["milliseconds"].get<double>(), threshold);
  EXPECT_EQ(both["predictions"][1]["fast"], 1);
  EXPECT_LT(both["predictions"][1]["milliseconds"].get<double>(), threshold);
  EXPECT_EQ(threshold, of_lines_["settings"][0]["fast_below_milliseconds"].get<double>());
}

TEST_F(PredictVerb, TrainingSaysHowGoodItIs) {
  EXPECT_THAT(trained_.out,
              AllOf(HasSubstr("both: 240 times of 2 settings, NVIDIA H200, driver 580.95"),
                    HasSubstr("held-out schemes"), HasSubstr("held-out settings"),
                    HasSubstr("bert-base (16, 1024) sliding:32 float16"), HasSubstr("Spearman")));
  const json held = of_lines_["held_out_schemes"];
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(held[0]["schemes"], 120);
  EXPECT_GT(held[0]["spearman"].get<double>(), .8);
  EXPECT_GE(held[0]["top_k_regret"]["1"].get<double>(),
            held[0]["top_k_regret"]["10"].get<double>());
  EXPECT_TRUE(of_lines_["held_out_settings"].empty());
  EXPECT_TRUE(of_lines_["origin"].is_null());
}

TEST_F(PredictVerb, OneModelForAllSettings) {
  const std::string model = " --model " + path("both");
  refused("41115" + model, 2, "was trained on several settings");
  const auto time = [&](const std::string& setting) {
    const Outcome outcome = run_seqfuse("predict 41115 " + setting + model);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return std::stod(outcome.out);
  };
  const double sliding = time("--mask sliding:32"), causal = time("--batch 8");
  EXPECT_GT(sliding, causal);
  const double between = time("--batch 12 --seq 1024 --mask sliding:32");  // not seen
  EXPECT_GT(between, causal);
  EXPECT_LT(between, 1.2 * sliding);
  EXPECT_THAT(run_seqfuse("predict 41115 --batch 12 --seq 1024 --mask sliding:32" + model).err,
              HasSubstr("has not seen bert-base (12, 1024) sliding:32"));
  refused("41115 --batch 12" + model, 2, "needs --batch, --seq and --mask alone");
  refused("41115 --batch 12 --seq 64 --mask diagonal" + model, 2, "diagonal");
  // A scheme and its legal form are the same program; characters may be flipped.
  EXPECT_EQ(run_seqfuse("predict 1365 --batch 8" + model).out,
            run_seqfuse("predict 6826 --batch 8" + model).out);
  EXPECT_EQ(run_seqfuse("predict 21845 --batch 8" + model).out,
            run_seqfuse("predict 10922 --batch 8" + model).out);
}

TEST_F(PredictVerb, RefusesWhatIsNoSchemeOrModel) {
  const std::string model = " --model " + path("lines");
  refused("65536" + model, 2, "65536 is out of range");
  refused("010001011101110" + model, 2, "has 15 characters");
  refused("01000101110111011" + model, 2, "has 17 characters");
  refused("010001011101110x" + model, 2, "is not a digit");
  refused("41115", 2, "--model is required");
  refused("--model " + path("lines"), 2, "nothing was given");
  refused("41115 --train " + path("times.txt") + model, 2, "SCHEME excludes --train");
  refused("41115 --model " + path("none"), 1, "none");
  refused("41115 --model " + path("times.txt"), 1, "no predictor");
}

TEST_F(PredictVerb, RefusesDataThatTeachesNothing) {
  const auto train = [&](const std::string& lines, int code, const std::string& why) {
    std::ofstream(path("bad.txt")) << lines;
    refused("--train " + path("bad.txt") + " --model " + path("new"), code, why);
    EXPECT_FALSE(std::filesystem::exists(path("new")));
  };
  train("1111100011001100 54.524\n", 1, "1 measured scheme; expected two or more");
  train("1111100011001100 54.524\n0100010111011101 54.524\n", 1, "all 2 times are 54.524 ms");
  train("1111100011001100 54.524\n0100010111011101 nan\n", 1, "bad.txt:2: the time is 'nan'");
  train("1111100011001100 54.524\n65536 3\n", 1, "bad.txt:2: scheme: 65536 is out of range");
  train("1111100011001100 54.524\n0100010111 3\n", 1, "has 10 characters");
  train("", 1, "it has no line");
  refused("--train " + path("tune.db") + " --card A100 --model " + path("new"), 1,
          "of what was selected");
}

TEST_F(PredictVerb, ReportOfMeasurements) {
  const std::string page = path("report.html");
  const Outcome outcome = run_seqfuse("report " + path("tune.db") + " -o " + page);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::stringstream html;
  html << std::ifstream(page).rdbuf();
  EXPECT_THAT(html.str(), AllOf(HasSubstr("bert-base (16, 1024) sliding:32 float16"),
                                HasSubstr("predicted against measured"), HasSubstr("best so far"),
                                HasSubstr("<dd>120 ok, 1 timeout</dd>"),
                                HasSubstr("time by segment"), HasSubstr("<h1>tune.db</h1>"),
                                Not(HasSubstr("href=")), Not(HasSubstr("src="))));
  const Outcome both = run_seqfuse("report " + path("tune.db") + " " + path(".") + " -o " + page);
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("expected one kind"));
  std::ofstream(path("broken.db")) << std::string(5000, 'x');
  const Outcome broken = run_seqfuse("report " + path("broken.db") + " -o " + page);
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.err, HasSubstr("damaged, or no database"));
}

}  // namespace
}  // namespace seqfuse::predict_cli_test
