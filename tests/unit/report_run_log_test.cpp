// Reading runs: lines, evaluations, parameters, truncated files, errors.
#include "report/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "tests/report_run.h"
#include "tests/temporary_directory.h"

namespace seqfuse::report::report_run_log_test {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class ReportRunLog : public testing::Test {
 protected:
  RunLog read(const HandMadeRun& run) const {
    run.write(path());
    return read_run(path());
  }
  std::string message(const HandMadeRun& run) const {
    try {
      read(run);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no error";
  }
  std::filesystem::path path() const { return directory_.path() / "run"; }
  TemporaryDirectory directory_;
};

TEST_F(ReportRunLog, ReadsLinesAndEvaluations) {
  const RunLog run = read({});
  EXPECT_EQ(run.name, "run");
  EXPECT_EQ(run.last_step, 20);
  EXPECT_EQ(run.last_epoch, 2);
  EXPECT_EQ(run.seconds, 2.5);
  ASSERT_EQ(run.scalars.at("loss").size(), 2u);
  EXPECT_EQ(run.scalars.at("loss")[1].value, 1.5);
  EXPECT_EQ(run.scalars.at("tokens_per_second")[1].epoch, 2);
  // In the order of the configuration, not of the file.
  EXPECT_THAT(run.metric_names, ElementsAre("HR@10", "MRR", "HR@5"));
  EXPECT_EQ(run.last_evaluation()->step, 20);
  EXPECT_EQ(run.best_evaluation()->step, 10);
  EXPECT_TRUE(std::isnan(value_of(run.last_evaluation()->metrics, "MRR")));
}

TEST_F(ReportRunLog, TheWatchedMetricDecidesWhichIsBest) {
  HandMadeRun files;
  files.operative += "TrainerArgs.early_stopping_metric = 'HR@5'\n";
  EXPECT_EQ(read(files).best_evaluation()->step, 20);
}

TEST_F(ReportRunLog, LowerNormalisedEntropyIsBetter) {
  HandMadeRun files;
  files.info.task = config::Task::ranking;
  files.operative += "RankingArgs.eval_metrics = ['NE', 'AUC']\n";
  files.metrics =
      "{\"epoch\":1,\"evaluation\":{\"AUC b\":1,\"NE a\":0.9,\"NE b\":0.1},\"step\":1}\n"
      "{\"epoch\":1,\"evaluation\":{\"AUC b\":2,\"NE a\":0.95,\"NE b\":0.1},\"step\":2}\n";
  const RunLog run = read(files);
  EXPECT_THAT(run.metric_names, ElementsAre("NE a", "NE b", "AUC b"));
  EXPECT_EQ(run.best_evaluation()->step, 1);
}

TEST_F(ReportRunLog, ALastLineThatIsCutOffIsLeftOut) {
  HandMadeRun files;
  const std::string whole = files.metrics;
  for (const size_t cut : {1u, 20u, 60u}) {
    files.metrics = whole + R"({"epoch":3,"loss":1.25,"step":30,"seconds":3.0,"tokens)";
    files.metrics.resize(whole.size() + cut);
    const RunLog run = read(files);
    EXPECT_EQ(run.last_step, 20) << cut;
    EXPECT_EQ(run.evaluations.size(), 2u);
  }
}

TEST_F(ReportRunLog, AMalformedLineBeforeTheLastIsNamed) {
  HandMadeRun files;
  files.metrics = "{\"epoch\":1,\"step\":1}\n{\"epoch\":1,\n" + files.metrics;
  EXPECT_THAT(message(files), HasSubstr("metrics.jsonl:2: expected a JSON object"));
  files.metrics = "{\"epoch\":1,\"step\":\"x\"}\n";
  EXPECT_THAT(message(files), HasSubstr("metrics.jsonl:1:"));
}

TEST_F(ReportRunLog, ARunThatHasJustStarted) {
  HandMadeRun files;
  files.metrics = "";
  const RunLog run = read(files);
  EXPECT_EQ(run.last_step, 0);
  EXPECT_EQ(run.last_evaluation(), nullptr);
  EXPECT_EQ(run.best_evaluation(), nullptr);
}

TEST_F(ReportRunLog, AStepThatIsEvaluatedAgainCountsOnce) {
  HandMadeRun files;
  files.metrics += "{\"epoch\":2,\"evaluation\":{\"HR@10\":0.4},\"step\":20}\n";
  EXPECT_EQ(read(files).evaluations.size(), 2u);
}

TEST_F(ReportRunLog, SeenTargetsAndChangesOfTheConfiguration) {
  HandMadeRun files;
  files.metrics +=
      R"({"configuration":{"A.x":{"before":"1","now":"2"},"A.y":{"before":"","now":"3"}},"epoch":2,"step":20})"
      "\n"
      R"({"epoch":3,"evaluation":{"HR@10":0.4},"seen_targets":12,"step":30,"targets":1000})"
      "\n";
  const RunLog run = read(files);
  ASSERT_EQ(run.changes.size(), 2u);
  EXPECT_EQ(run.changes[0].step, 20);
  EXPECT_EQ(run.changes[0].parameter, "A.x");
  EXPECT_EQ(run.changes[0].before, "1");
  EXPECT_EQ(run.changes[1].now, "3");
  EXPECT_EQ(run.evaluations.front().targets, 0);
  EXPECT_EQ(run.last_evaluation()->targets, 1000);
  EXPECT_EQ(run.last_evaluation()->seen_targets, 12);
  EXPECT_EQ(run.last_step, 30);
}

TEST_F(ReportRunLog, BaselinesKeepOrderAndUndefinedValues) {
  const double undefined = std::numeric_limits<double>::quiet_NaN();
  HandMadeRun().write(path());
  EXPECT_TRUE(read_run(path()).baselines.empty());
  write_baselines(path(),
                  {{"popularity", {{"MRR", 0.5}, {"HR@5", undefined}}}, {"a", {{"MRR", 1}}}});
  const NamedMetrics baselines = read_run(path()).baselines;
  ASSERT_EQ(baselines.size(), 2u);
  EXPECT_EQ(baselines[0].first, "popularity");
  EXPECT_EQ(baselines[0].second[0], (std::pair<std::string, double>("MRR", 0.5)));
  EXPECT_TRUE(std::isnan(baselines[0].second[1].second));
  std::ofstream(path() / "baselines.json") << "[1]";
  EXPECT_THROW(read_run(path()), DataError);
}

TEST_F(ReportRunLog, EqualNamesAreToldApart) {
  const auto a = directory_.path() / "a" / "run", b = directory_.path() / "b" / "run";
  HandMadeRun().write(a);
  HandMadeRun().write(b);
  const auto runs = read_runs({a.string() + "/", b.string()});
  EXPECT_EQ(runs[0].name, a.string() + "/");
  EXPECT_EQ(runs[1].name, b.string());
  EXPECT_EQ(read_runs({a.string() + "/"})[0].name, "run");
}

TEST_F(ReportRunLog, RefusesFoldersThatAreNoRun) {
  EXPECT_THROW(read_run(directory_.path() / "nothing"), DataError);
  EXPECT_THROW(read_run(directory_.path()), DataError);
}

TEST(ReportParameters, ValuesMaySpanLines) {
  EXPECT_THAT(
      split_parameters("# c\n\nA.x = 1\nA.y = [\n    @B(),\n]\ns/A.z = 'a = b'\n"),
      ElementsAre(Pair("A.x", "1"), Pair("A.y", "[\n    @B(),\n]"), Pair("s/A.z", "'a = b'")));
}

TEST(ReportParameters, OnlyWhatDiffers) {
  const auto found = differences({{{"A.x", "1"}, {"A.y", "2"}}, {{"A.x", "1"}, {"A.z", "3"}}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "A.y");
  EXPECT_THAT(found[0].values, ElementsAre("2", ""));
  EXPECT_THAT(found[1].values, ElementsAre("", "3"));
}

}  // namespace
}  // namespace seqfuse::report::report_run_log_test
