// seqfuse report from the command line: real runs and data, live runs, moved data, errors; and the
// files that `seqfuse train` writes for it and for TensorBoard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/cli/trained_runs.h"
#include "tests/report_run.h"

namespace seqfuse::report_test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class ReportCli : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string page() const { return read_file(path("report.html")); }
  Outcome report(const std::string& arguments) const {
    return run_seqfuse("report " + arguments + " -o " + path("report.html"));
  }
  TemporaryDirectory directory_;
};

TEST_F(ReportCli, TrainedRunsWithBaselinesAndData) {
  const TrainedRuns& runs = TrainedRuns::get();
  const Outcome outcome = report(runs.retrieval() + " " + runs.ranking());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"retrieval, last", "Markov, first order", "item mean", "HR@3", "ACC", "Dataset csv",
        "<dt>users</dt><dd>40</dd>", "<dt>items</dt><dd>15</dd>", "<dt>events</dt><dd>320</dd>",
        "8 to 15 events: 40 users", "RankingArgs.prediction_head_arch"}) {
    EXPECT_THAT(page(), HasSubstr(part));
  }
  EXPECT_THAT(page(), Not(HasSubstr("baselines of")));
}

TEST_F(ReportCli, TrainSavesTheBaselinesItPrints) {
  const auto baselines =
      nlohmann::json::parse(read_file(fs::path(TrainedRuns::get().retrieval()) / "baselines.json"));
  EXPECT_DOUBLE_EQ(baselines["Markov, first order"]["MRR"], 1.0);
  EXPECT_TRUE(baselines.contains("popularity"));
}

TEST_F(ReportCli, ALiveRunWhoseDataIsGone) {
  HandMadeRun live;
  live.metrics += "{\"epoch\":3,\"lo";
  live.write(path("live"));
  write_file_atomically(path("report.html"), "an older report");
  const Outcome outcome = report(path("live"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("/no/such/dataset is missing"));
  EXPECT_THAT(page(), HasSubstr("--data DIR"));
  EXPECT_THAT(page(), Not(HasSubstr("an older report")));
}

TEST_F(ReportCli, DataThatWasMoved) {
  const TrainedRuns& runs = TrainedRuns::get();
  HandMadeRun moved;
  moved.info.dataset_hash =
      nlohmann::json::parse(read_file(fs::path(runs.retrieval()) / "run.json"))["dataset_hash"];
  moved.write(path("run"));
  const Outcome found = report(path("run") + " --data " + runs.data());
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_THAT(page(), HasSubstr("<dt>users</dt><dd>40</dd>"));
  const Outcome other = report(path("run") + " --data " + runs.other_data());
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("another dataset"));
  EXPECT_EQ(report(path("run") + " --data " + path("nowhere")).code, 1);
}

TEST_F(ReportCli, RefusesWhatIsNoRun) {
  const Outcome data = report(TrainedRuns::get().data());
  EXPECT_EQ(data.code, 1);
  EXPECT_THAT(data.err, HasSubstr(TrainedRuns::get().data() + " is not a run directory"));
  EXPECT_THAT(data.err, HasSubstr("seqfuse train --output"));
  EXPECT_FALSE(fs::exists(path("report.html")));
  EXPECT_EQ(run_seqfuse("report " + TrainedRuns::get().retrieval()).code, 2) << "no -o";
}

TEST_F(ReportCli, BlankPathsAreUsageErrors) {
  for (const char* arguments : {"'' -o x", "run -o ' '", "run -o x --data ''"}) {
    const Outcome outcome = run_seqfuse(std::string("report ") + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("is blank")) << arguments;
  }
}

TEST_F(ReportCli, TrainWritesTensorBoardAndResumesInANewFile) {
  const TrainedRuns& runs = TrainedRuns::get();
  const std::string train =
      "train retrieval --quiet --tensorboard --data " + runs.data() + " --gin-config-file " +
      (fs::path(runs.data()).parent_path() / "retrieval.gin").string() + " --output " + path("run");
  ASSERT_EQ(run_seqfuse(train).code, 0);
  const fs::path folder = path("run/tensorboard");
  ASSERT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  const std::string events = read_file(fs::directory_iterator(folder)->path());
  for (const char* tag : {"brain.Event:2", "train/loss", "train/learning_rate",
                          "train/tokens_per_second", "evaluation/HR@3", "evaluation/MRR"}) {
    EXPECT_THAT(events, HasSubstr(tag));
  }
  ASSERT_EQ(run_seqfuse(train + " --resume --gin TrainerArgs.max_train_iters=8").code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

}  // namespace
}  // namespace seqfuse::report_test
