// seqfuse evaluate: the table, JSON, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse::evaluate_test {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST(Evaluate, RetrievalBesideBaselines) {
  const Outcome outcome = run_seqfuse("evaluate " + TrainedRuns::get().retrieval());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"HR@3", "MRR", "model", "popularity", "Markov"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(Evaluate, JsonHoldsNothingElseAndRepeats) {
  const std::string arguments = "evaluate --json " + TrainedRuns::get().retrieval();
  const Outcome outcome = run_seqfuse(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["step"], 6);
  EXPECT_EQ(result["windows"], 40);
  EXPECT_EQ(result["seen_targets"], 0);  // eight events on a ring of 15 items
  EXPECT_THAT(outcome.err, HasSubstr("0 of 40 targets (0.0 %) are items that the user has had"));
  // The ring makes the next item certain: the Markov baseline is always right.
  EXPECT_DOUBLE_EQ(result["baselines"]["Markov, first order"]["MRR"], 1.0);
  EXPECT_GT(result["model"]["MRR"], 0.0);
  EXPECT_EQ(run_seqfuse(arguments).out, outcome.out);
}

TEST(Evaluate, RankingClasses) {
  const Outcome outcome = run_seqfuse("evaluate --json " + TrainedRuns::get().ranking());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_TRUE(result["model"].contains("ACC"));
  EXPECT_TRUE(result["baselines"]["item mean"].contains("AUC"));
}

TEST(Evaluate, CheckpointSplitAndUsersAreChosen) {
  const Outcome outcome =
      run_seqfuse("evaluate --json --checkpoint step_3 --split validation --max_users 7 " +
                  TrainedRuns::get().retrieval());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["step"], 3);
  EXPECT_EQ(result["split"], "validation");
  EXPECT_EQ(result["windows"], 7);
}

TEST(Evaluate, RefusesWhatIsNotThere) {
  const std::string run = TrainedRuns::get().retrieval();
  const Outcome step = run_seqfuse("evaluate --checkpoint step_99 " + run);
  EXPECT_EQ(step.code, 2);
  EXPECT_THAT(step.err, HasSubstr("step_6"));
  const Outcome nothing = run_seqfuse("evaluate " + TrainedRuns::get().data());
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("run.json"));
  EXPECT_EQ(run_seqfuse("evaluate --split train " + run).code, 2);
}

TEST(Evaluate, RefusesAnotherVocabulary) {
  const Outcome outcome = run_seqfuse("evaluate " + TrainedRuns::get().retrieval() + " --data " +
                                      TrainedRuns::get().other_data());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("vocabulary"));
}

TEST(Evaluate, RefusesNumbersOfUsersBeyondInt64) {
  const Outcome outcome = run_seqfuse("evaluate " + TrainedRuns::get().retrieval() +
                                      " --max-users 9223372036854775808");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--max-users"));
}

TEST(Evaluate, RefusesBlankPaths) {
  const std::string run = TrainedRuns::get().retrieval();
  for (const std::string blank : {"''", "' '"}) {
    for (const auto& [arguments, name] : {std::pair(blank, "RUN"),
                                          {run + " --data " + blank, "--data"},
                                          {run + " --checkpoint " + blank, "--checkpoint"},
                                          {run + " --max-users " + blank, "--max-users"},
                                          {run + " --split " + blank, "--split"}}) {
      const Outcome outcome = run_seqfuse("evaluate " + arguments);
      EXPECT_EQ(outcome.code, 2) << arguments;
      EXPECT_THAT(outcome.err, HasSubstr(name)) << arguments;
    }
  }
}

// The same ids, hence the same vocabulary hash, but without the columns that the model reads.
TEST(Evaluate, RefusesADatasetWithoutActions) {
  const TemporaryDirectory directory;
  const std::string data = (directory.path() / "data").string();
  const Outcome made =
      run_seqfuse("preprocess --dataset-name csv --input " + TrainedRuns::get().log() +
                  " --output " + data + " --context-columns country");
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome ranking =
      run_seqfuse("evaluate " + TrainedRuns::get().ranking() + " --data " + data);
  EXPECT_EQ(ranking.code, 1);
  EXPECT_THAT(ranking.err, HasSubstr("has 0 labels of actions"));
  EXPECT_THAT(ranking.err, HasSubstr("has 5"));
}

TEST(Evaluate, RefusesADatasetWithoutTimes) {
  const TemporaryDirectory directory;
  const std::string data = (directory.path() / "data").string();
  const Outcome made =
      run_seqfuse("preprocess --dataset-name csv --input " + TrainedRuns::get().log() +
                  " --output " + data + " --action-column rating --context-columns country");
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome research =
      run_seqfuse("evaluate " + TrainedRuns::get().research() + " --data " + data);
  EXPECT_EQ(research.code, 1);
  EXPECT_THAT(research.err, HasSubstr("has no times"));
  EXPECT_EQ(run_seqfuse("evaluate " + TrainedRuns::get().retrieval() + " --data " + data).code, 0);
}

TEST(Evaluate, NamesADamagedFile) {
  const TemporaryDirectory directory;
  const fs::path run = directory.path() / "run";
  fs::copy(TrainedRuns::get().retrieval(), run, fs::copy_options::recursive);
  const fs::path file = run / "checkpoints/step_6/dense.safetensors";
  std::string content = read_file(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  write_file_atomically(file, content);
  const Outcome outcome = run_seqfuse("evaluate " + run.string());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("dense.safetensors"));
}

}  // namespace
}  // namespace seqfuse::evaluate_test
