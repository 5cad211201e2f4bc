// seqfuse train with embedding tables sharded over processes.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/checkpoint_tensors.h"
#include "tests/cli/distributed_run.h"

namespace seqfuse::sharded_tables_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ShardedTables : public DistributedRun {
 protected:
  static std::string command(const std::string& task, const std::string& run, int size) {
    return DistributedRun::command(task, run, size, "sharded.gin");
  }
};

// In the last step of an epoch one of three processes has no users.
TEST_F(ShardedTables, TwoAndThreeProcessesHaveTheLossesAndMetricsOfOne) {
  for (const std::string task : {"retrieval", "ranking"}) {
    const std::string one = run(task + "1");
    ASSERT_EQ(in_processes(1, command(task, one, 1)).code, 0);
    for (const int size : {2, 3}) {
      const std::string several = run(task + std::to_string(size));
      const Outcome outcome = in_processes(size, command(task, several, size));
      ASSERT_EQ(outcome.code, 0) << outcome.out;
      EXPECT_THAT(outcome.out,
                  HasSubstr(fmt::format("table item: 24 rows over {} processes", size)));
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("table action: 5 rows over {}", size)));
      expect_same_metrics(several, one);
    }
  }
}

TEST_F(ShardedTables, AccumulatedBatchesMakeTheSameSteps) {
  for (const std::string optimizer : {"sgd", "row_wise_adagrad"}) {
    const std::string more = fmt::format(
        " --gin TrainerArgs.gradient_accumulation_steps=3 --gin TrainerArgs.max_train_iters=6 "
        "--gin OptimizerArgs.embedding_optimizer_str='{}'",
        optimizer);
    const std::string one = run(optimizer + "1"), two = run(optimizer + "2");
    ASSERT_EQ(in_processes(1, command("ranking", one, 1) + more).code, 0);
    const Outcome outcome = in_processes(2, command("ranking", two, 2) + more);
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    expect_same_metrics(two, one);
  }
}

TEST_F(ShardedTables, ACheckpointOfAnyNumberOfProcessesGoesOnInAnyOther) {
  const std::string whole = run("whole");
  ASSERT_EQ(in_processes(1, command("retrieval", whole, 1)).code, 0);
  for (const int before : {1, 2, 3}) {
    const std::string part = run(fmt::format("part{}", before));
    const Outcome first = in_processes(
        before, command("retrieval", part, before) + " --gin TrainerArgs.max_train_iters=6");
    ASSERT_EQ(first.code, 0) << first.out;
    for (const int after : {1, 2, 3}) {
      const std::string resumed = run(fmt::format("from{}to{}", before, after));
      fs::copy(part, resumed, fs::copy_options::recursive);
      const Outcome outcome =
          in_processes(after, command("retrieval", resumed, after) + " --resume");
      ASSERT_EQ(outcome.code, 0) << outcome.out;
      EXPECT_THAT(outcome.out, HasSubstr("resuming from"));
      expect_same_metrics(resumed, whole);
    }
  }
}

// Averages live with their rows: evaluated and saved there, and redistributed when the number of
// processes changes.
TEST_F(ShardedTables, AveragedWeightsAreThoseOfOneProcessAlsoAfterAResume) {
  const std::string more = " --gin OptimizerArgs.average_decay=0.8";
  const std::string one = run("one"), two = run("two"), resumed = run("resumed");
  ASSERT_EQ(in_processes(1, command("retrieval", one, 1) + more).code, 0);
  const Outcome whole = in_processes(2, command("retrieval", two, 2) + more);
  ASSERT_EQ(whole.code, 0) << whole.out;
  const Outcome first = in_processes(
      2, command("retrieval", resumed, 2) + more + " --gin TrainerArgs.max_train_iters=6");
  ASSERT_EQ(first.code, 0) << first.out;
  const Outcome second = in_processes(1, command("retrieval", resumed, 1) + more + " --resume");
  ASSERT_EQ(second.code, 0) << second.out;

  const CheckpointTensors expected = checkpoint_tensors(one, 12);
  // The saved weights are averages; training continues with different ones.
  EXPECT_GT(largest_difference(expected.at("item"), expected.at("item.unaveraged")), 1e-3);
  for (const std::string& run : {two, resumed}) {
    expect_same_metrics(run, one);
    expect_same_tensors(checkpoint_tensors(run, 12), expected);
  }
}

TEST_F(ShardedTables, TheirCheckpointsAreEvaluatedRecommendedFromAndTrainedOnLikeOthers) {
  const std::string path = run("two");
  const Outcome outcome = in_processes(2, command("retrieval", path, 2));
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const Outcome evaluated = in_processes(1, "evaluate " + path + " --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.out;
  const auto result = nlohmann::json::parse(evaluated.out.substr(evaluated.out.find('{')));
  const nlohmann::json last = metrics_of(path).back();
  for (const auto& [name, value] : last["evaluation"].items()) {
    EXPECT_NEAR(result["model"][name].get<double>(), value.get<double>(), 1e-6) << name;
  }
  const Outcome recommended = in_processes(1, "recommend " + path + " --user 7");
  EXPECT_EQ(recommended.code, 0) << recommended.out;

  // New runs from its weights start with the loss of a single process.
  std::vector<double> losses;
  for (const int size : {1, 3}) {
    const std::string next = run(fmt::format("next{}", size));
    const Outcome started = in_processes(
        size, command("retrieval", next, size) + " --gin TrainerArgs.max_train_iters=1 --gin " +
                  "TrainerArgs.ckpt_load_dir='" + path + "/checkpoints/step_12'");
    ASSERT_EQ(started.code, 0) << started.out;
    losses.push_back(metrics_of(next).front()["loss"]);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  EXPECT_LT(losses[0], metrics_of(path).front()["loss"].get<double>() - 0.1);
}

// One new item sorts before the known ones, so every row gets another place.
TEST_F(ShardedTables, RowsAreMovedWhenTheDatasetHasGrown) {
  const std::string part = run("part"), log = run("log.csv"), data = run("grown");
  const std::string six =
      " --gin TrainerArgs.max_train_iters=6 --gin OptimizerArgs.average_decay=0.8";
  const Outcome first = in_processes(2, command("retrieval", part, 2) + six);
  ASSERT_EQ(first.code, 0) << first.out;
  write_file_atomically(
      log, read_file(shared_->path() / "log.csv") + "0,-5,99000,1\n1,-5,99000,3\n1,7,99060,2\n");
  const Outcome preprocessed = run_seqfuse(
      fmt::format("preprocess --dataset-name csv --input {} --output {} --time-column timestamp "
                  "--action-column rating",
                  log, data));
  ASSERT_EQ(preprocessed.code, 0) << preprocessed.text();
  std::vector<CheckpointTensors> tensors;
  for (const int size : {1, 2, 3}) {
    const std::string resumed = run(fmt::format("in{}", size));
    fs::copy(part, resumed, fs::copy_options::recursive);
    const Outcome outcome = in_processes(
        size, fmt::format("train retrieval --resume {} --data {} --threads 1 --gin "
                          "TrainerArgs.train_batch_size={} --gin TrainerArgs.max_train_iters=9",
                          resumed, data, 12 / size));
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("table item: 24 rows kept, 1 new; table action: 5 rows "
                                       "kept, 0 new"));
    tensors.push_back(checkpoint_tensors(resumed, 9));
    expect_same_tensors(tensors.back(), tensors.front());
  }
}

TEST_F(ShardedTables, ATableThatTheModelDoesNotHaveIsRefused) {
  const Outcome outcome = in_processes(2, command("retrieval", run("wrong"), 2) +
                                              " --gin item/EmbeddingArgs.feature_names=['itme']");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.out,
              HasSubstr("EmbeddingArgs.sharding_type of table 'item' is 'model_parallel', but the "
                        "model has none of its features ['itme'] (did you mean"));
  EXPECT_THAT(outcome.out, HasSubstr("the features with tables are action, item"));
}

}  // namespace
}  // namespace seqfuse::sharded_tables_test
