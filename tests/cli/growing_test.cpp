// Runs that continue with a data set that has grown: rows stay with their raw ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "report/run_files.h"
#include "tests/cli/checkpoint_tensors.h"
#include "tests/cli/trained_runs.h"
#include "tests/run_metrics.h"

namespace seqfuse::growing_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

// The new index of an old row: all new ids but the last sort before the old ones.
//   items    item0, item1, item10, ... -> aaa, item0, ..., zzz
//   actions  0 to 4                    -> -1, 0 to 4
//   country  country0 to country2      -> atlantis, country0, ...
int64_t moved(const std::string& table, int64_t row) {
  if (table == "action") return row + 1;
  return row == 0 ? 0 : row + 1;  // 0 is unknown
}

class Growing : public testing::Test {
 protected:
  // The log of TrainedRuns::data() and more lines, preprocessed. drop: whether a line is left out.
  std::string make_data(
      const std::string& name, const std::string& more,
      const std::function<bool(const std::string&)>& drop = nullptr,
      const std::string& options = "--action-column rating --context-columns country") const {
    std::ifstream in(TrainedRuns::get().log());
    std::ofstream out(path(name + ".csv"));
    for (std::string line; std::getline(in, line);) {
      if (!drop || !drop(line)) out << line << '\n';
    }
    out << more;
    out.close();
    const Outcome outcome = run_seqfuse(fmt::format(
        "preprocess --dataset-name csv --input {} --output {} --time-column timestamp {}",
        path(name + ".csv"), path(name), options));
    EXPECT_EQ(outcome.code, 0) << outcome.text();
    return path(name);
  }
  std::string grown_data() const {
    return make_data("grown",
                     "a_user,aaa,5000,-1,atlantis\na_user,item3,5060,2,atlantis\n"
                     "a_user,zzz,5120,4,atlantis\nu0,zzz,5000,1,country0\n");
  }

  std::string copy_of(const std::string& run) const {
    const std::string copy = path(fs::path(run).filename().string());
    fs::copy(run, copy, fs::copy_options::recursive);
    return copy;
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }

  static std::string resume(const std::string& run, int64_t steps, const std::string& data) {
    return fmt::format("train retrieval --resume {} --gin TrainerArgs.max_train_iters={} --data {}",
                       run, steps, data);
  }

  static Outcome must(const std::string& arguments) {
    Outcome outcome = run_seqfuse(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.text();
    return outcome;
  }

  static void expect_refused(const std::string& arguments, const std::string& message) {
    const Outcome outcome = run_seqfuse(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.text();
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }

  TemporaryDirectory directory_;
};

// All rows of a table and of its optimiser state, where states is set.
void expect_rows_moved(const CheckpointTensors& before, const CheckpointTensors& after,
                       const std::string& table, int64_t new_rows, bool states) {
  std::vector<std::string> names = {table};
  if (states) names.insert(names.end(), {table + ".exp_avg", table + ".exp_avg_sq"});
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(before.contains(name) && after.contains(name));
    const std::vector<float>&then = before.at(name), &now = after.at(name);
    constexpr int64_t kWidth = 16;
    const int64_t rows = std::ssize(then) / kWidth;
    ASSERT_EQ(std::ssize(now), (rows + new_rows) * kWidth);
    std::vector<bool> known(static_cast<size_t>(rows + new_rows));
    const auto row_of = [](const std::vector<float>& all, int64_t row) {
      return std::vector<float>(all.begin() + row * kWidth, all.begin() + (row + 1) * kWidth);
    };
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t place = moved(table, row);
      known[static_cast<size_t>(place)] = true;
      EXPECT_EQ(row_of(now, place), row_of(then, row)) << "row " << row;
    }
    for (int64_t row = 0; row < rows + new_rows; ++row) {
      if (known[static_cast<size_t>(row)]) continue;
      // New rows are drawn; their state begins at 0.
      if (name == table) {
        EXPECT_THAT(row_of(now, row), testing::Contains(testing::Ne(0.F))) << "row " << row;
      } else {
        EXPECT_THAT(row_of(now, row), Each(0.F)) << "row " << row;
      }
    }
  }
}

TEST_F(Growing, ResumingKeepsRowsAndTheirStateByRawId) {
  for (const bool averaged : {false, true}) {
    SCOPED_TRACE(averaged);
    const std::string run = averaged ? path("averaged") : copy_of(TrainedRuns::get().retrieval());
    if (averaged) {
      must(
          fmt::format("train retrieval --gin-config-file {}/operative_config.gin --data {} "
                      "--output {} --gin OptimizerArgs.average_decay=0.5",
                      TrainedRuns::get().retrieval(), TrainedRuns::get().data(), run));
    }
    const std::string data = averaged ? path("grown") : grown_data();
    const CheckpointTensors before = checkpoint_tensors(run, 6);
    // As many steps as it has: nothing is trained.
    const Outcome resumed = must(resume(run, 6, data));
    EXPECT_THAT(resumed.err, AllOf(HasSubstr("new data: 324 events of 41 users, 320 of 40 before"),
                                   HasSubstr("table item: 16 rows kept, 2 new"),
                                   HasSubstr("table action: 5 rows kept, 1 new"),
                                   HasSubstr("table country: 4 rows kept, 1 new")));
    const CheckpointTensors after = checkpoint_tensors(run, 6);
    for (const auto& [table, new_rows] : {std::pair("item", 2), {"action", 1}, {"country", 1}}) {
      expect_rows_moved(before, after, table, new_rows, /*states=*/true);
      if (!averaged) continue;
      // The weights that training continues from move too, and are new where the averages are.
      const std::string raw = std::string(table) + ".unaveraged";
      EXPECT_NE(before.at(raw), before.at(table));
      CheckpointTensors raw_before = {{table, before.at(raw)}},
                        raw_after = {{table, after.at(raw)}};
      expect_rows_moved(raw_before, raw_after, table, new_rows, /*states=*/false);
    }
    for (const auto& [name, values] : before) {
      if (name.starts_with("encoder.")) {
        EXPECT_EQ(after.at(name), values) << name;
      }
    }
    // The run is of the new data from now on, and training continues.
    const report::RunInfo info = report::read_run_info(run);
    EXPECT_EQ(info.dataset_events, 324);
    EXPECT_EQ(info.dataset_path, data);
    const Outcome onwards =
        must("train retrieval --resume " + run + " --gin TrainerArgs.max_train_iters=9");
    EXPECT_THAT(onwards.err, Not(HasSubstr("new data")));
    EXPECT_THAT(onwards.err, Not(HasSubstr("rows kept")));
    EXPECT_NE(checkpoint_tensors(run, 9).at("item"), after.at("item"));
    must("evaluate " + run);
    EXPECT_THAT(must("recommend " + run + " --top-k 20 --history zzz,aaa --actions 4,-1").out,
                HasSubstr("item3"));
    EXPECT_THAT(must("recommend " + run + " --top-k 20 --user a_user").out, HasSubstr("item14"));
  }
}

TEST_F(Growing, ARunBeginsWithTheRowsOfASmallerCatalogue) {
  const std::string run = TrainedRuns::get().research(), data = grown_data();
  const Outcome begun = must(fmt::format(
      "train retrieval --gin-config-file {0}/operative_config.gin --data {1} --output {2} "
      "--gin \"TrainerArgs.ckpt_load_dir='{0}/checkpoints/step_6'\" --gin "
      "TrainerArgs.max_train_iters=1 --gin OptimizerArgs.learning_rate=1e-30 --gin "
      "OptimizerArgs.weight_decay=0",
      run, data, path("run")));
  EXPECT_THAT(begun.err, HasSubstr("the vocabulary has grown: table item: 16 rows kept, 2 new\n"));
  EXPECT_THAT(begun.err, Not(HasSubstr("differs in\n  context")));
  expect_rows_moved(checkpoint_tensors(run, 6), checkpoint_tensors(path("run"), 1), "item", 2,
                    /*states=*/false);
}

TEST_F(Growing, ARunOnNewEventsOfKnownIdsGoesOnToo) {
  const std::string run = copy_of(TrainedRuns::get().research());
  const std::string data = make_data("later", "u0,item3,5000,1,country0\n");
  const Outcome resumed = must(resume(run, 8, data));
  EXPECT_THAT(resumed.err, HasSubstr("new data: 321 events of 40 users, 320 of 40 before"));
  EXPECT_THAT(resumed.err, Not(HasSubstr("rows kept")));
  // Their first epoch begins, and steps are counted on.
  const auto last = metrics_of(run).back();
  EXPECT_EQ(last["step"], 8);
  EXPECT_EQ(last["epoch"], 1);
}

TEST_F(Growing, ARunThatWasKilledWhileItMovedGoesOn) {
  const std::string run = copy_of(TrainedRuns::get().research()), data = grown_data();
  const std::string old_vocabulary = path("vocabulary");
  fs::copy(run + "/vocabulary", old_vocabulary, fs::copy_options::recursive);
  const std::string old_description = read_file(run + "/run.json");
  must(resume(run, 6, data));
  const CheckpointTensors moved = checkpoint_tensors(run, 6);
  const std::string vocabulary = read_file(run + "/vocabulary/items.arrow");
  // Killed after the checkpoint and before the rest.
  fs::remove_all(run + "/vocabulary");
  fs::copy(old_vocabulary, run + "/vocabulary", fs::copy_options::recursive);
  write_file_atomically(run + "/run.json", old_description);
  expect_refused(resume(run, 6, TrainedRuns::get().data()),
                 "is not the vocabulary that the checkpoint was trained on");
  must(resume(run, 6, data));
  EXPECT_EQ(checkpoint_tensors(run, 6), moved);
  EXPECT_EQ(read_file(run + "/vocabulary/items.arrow"), vocabulary);
  must("similar " + run + " --item zzz");
}

TEST_F(Growing, VocabulariesThatShrankOrChangedAreRefused) {
  const std::string retrieval = TrainedRuns::get().retrieval();
  const auto has = [](const char* text) {
    return [text](const std::string& line) { return line.find(text) != std::string::npos; };
  };
  // Enough other events that it has not fewer than before.
  std::string more;
  for (int i = 0; i < 200; ++i) more += fmt::format("u1,item1,{},1,country1\n", 9000 + i);
  expect_refused(resume(copy_of(retrieval), 7, make_data("shrunk", more, has(",item13,"))),
                 "shrunk lacks 1 of the 15 items that the weights were trained on (" +
                     path("retrieval") + "/vocabulary), such as 'item13': a vocabulary may grow");
  fs::remove_all(path("retrieval"));
  expect_refused(resume(copy_of(retrieval), 7, make_data("fewer", "", has(",4,"))),
                 "events of 40 users, but ");
  const std::string loads = fmt::format(
      "train retrieval --gin-config-file {0}/operative_config.gin --output {1} --gin "
      "\"TrainerArgs.ckpt_load_dir='{0}/checkpoints/step_6'\" --data ",
      retrieval, path("new"));
  expect_refused(loads + make_data("no_country2", more, has("country2")),
                 "lacks 1 of the 3 values of context feature country");
  expect_refused(loads + make_data("no_4", more, has(",4,")), "lacks 1 of the 5 actions");
  expect_refused(loads + make_data("no_context", more, nullptr, "--action-column rating"),
                 "has the context features [], the weights were trained with [country]");
  expect_refused(loads + make_data("no_actions", more, nullptr, "--context-columns country"),
                 "are of another kind than those that the weights were trained on");
  EXPECT_FALSE(fs::exists(path("new")));
  // The head of a ranking run predicts classes by number.
  const std::string ranking = TrainedRuns::get().ranking();
  expect_refused(
      fmt::format("train ranking --gin-config-file {0}/operative_config.gin --output {1} --gin "
                  "\"TrainerArgs.ckpt_load_dir='{0}/checkpoints/step_6'\" --gin "
                  "'RankingArgs.prediction_head_arch=[8,6]' --data {2}",
                  ranking, path("new"), grown_data()),
      "these must be the first ones, in this order");
}

TEST_F(Growing, ARunWithoutAVocabularyCannotBeMoved) {
  const std::string run = copy_of(TrainedRuns::get().research());
  fs::remove_all(run + "/vocabulary");
  expect_refused(resume(run, 7, grown_data()), "another vocabulary");
}

}  // namespace
}  // namespace seqfuse::growing_test
