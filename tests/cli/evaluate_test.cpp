// seqfuse evaluate: the table, JSON, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/cli/trained_runs.h"

namespace seqfuse {
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
}  // namespace seqfuse
