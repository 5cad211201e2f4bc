// seqfuse train with tables of DynamicEmbeddingArgs: rows for new ids, eviction, one or several
// processes, checkpoints.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/distributed_run.h"

namespace seqfuse::dynamic_tables_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kDynamic = R"(
DynamicEmbeddingArgs.item_vocab_size_or_capacity = 1000
item/DynamicEmbeddingArgs.feature_names = ['item']
item/DynamicEmbeddingArgs.table_name = 'item'
action/DynamicEmbeddingArgs.feature_names = ['action']
action/DynamicEmbeddingArgs.table_name = 'action'
)";
// Rows of 9 of the 24 ids.
constexpr const char* kFew =
    " --gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=9 --gin "
    "RetrievalArgs.negatives='uniform' --gin RetrievalArgs.num_negatives=1 --gin "
    "TrainerArgs.train_batch_size=1 --gin DatasetArgs.max_history_seqlen=4";

class DynamicTables : public DistributedRun {
 protected:
  static void SetUpTestSuite() {
    DistributedRun::SetUpTestSuite();
    write_file_atomically(shared_->path() / "dynamic.gin", std::string(kConfig) + kDynamic);
  }
  static std::string command(const std::string& task, const std::string& run, int size) {
    return DistributedRun::command(task, run, size, "dynamic.gin");
  }
};

// dealing: DynamicEmbeddingArgs.dist_type.
TEST_F(DynamicTables, TwoAndThreeProcessesHaveTheLossesAndMetricsOfOne) {
  struct Case {
    std::string task;
    int size;
    std::string dealing;
  };
  for (const auto& [task, size, dealing] : {Case{"retrieval", 3, "hash_roundrobin"},
                                            {"ranking", 2, "roundrobin"},
                                            {"ranking", 2, "continuous"}}) {
    const std::string one = run(task + "1"), several = run(task + dealing);
    if (!fs::exists(one)) {
      const Outcome alone = in_processes(1, command(task, one, 1));
      ASSERT_EQ(alone.code, 0) << alone.out;
      EXPECT_THAT(alone.out, HasSubstr("table item: up to 24 rows of 192B"));
    }
    const Outcome outcome =
        in_processes(size, command(task, several, size) +
                               " --gin DynamicEmbeddingArgs.dist_type='" + dealing + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    expect_same_metrics(several, one);
  }
}

TEST_F(DynamicTables, ACheckpointOfAnyNumberOfProcessesGoesOnInAnyOther) {
  const std::string whole = run("whole");
  ASSERT_EQ(in_processes(1, command("retrieval", whole, 1)).code, 0);
  for (const auto& [before, after] : {std::pair{1, 2}, {2, 1}, {2, 2}, {3, 2}}) {
    const std::string path = run(fmt::format("from{}to{}", before, after));
    const Outcome first = in_processes(
        before, command("retrieval", path, before) + " --gin TrainerArgs.max_train_iters=6");
    ASSERT_EQ(first.code, 0) << first.out;
    const Outcome outcome = in_processes(after, command("retrieval", path, after) + " --resume");
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    expect_same_metrics(path, whole);
  }
}

TEST_F(DynamicTables, ACheckpointGoesFromThreeProcessesToTwoToOne) {
  const std::string whole = run("whole"), path = run("chain");
  const std::string evaluations = " --gin TrainerArgs.eval_interval=4";  // also where a run ends
  ASSERT_EQ(in_processes(1, command("retrieval", whole, 1) + evaluations).code, 0);
  std::string resume;
  for (const auto& [processes, until] : {std::pair{3, "4"}, {2, "8"}, {1, ""}}) {
    std::string words = command("retrieval", path, processes) + evaluations + resume;
    if (*until != 0) words += std::string(" --gin TrainerArgs.max_train_iters=") + until;
    const Outcome outcome = in_processes(processes, words);
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    resume = " --resume";
  }
  expect_same_metrics(path, whole);
}

TEST_F(DynamicTables, TwoProcessesThatAreKilledGoOnInOne) {
  const std::string whole = run("whole"), killed = run("killed");
  const std::string steps = " --gin TrainerArgs.max_train_iters=30";
  ASSERT_EQ(in_processes(1, command("ranking", whole, 1) + steps).code, 0);
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Background>> processes;
  for (const char* rank : {"0", "1"}) {
    std::vector<std::string> words =
        words_of(command("ranking", killed, 2) + steps + " --gin TrainerArgs.ckpt_save_interval=5");
    words.insert(words.begin(), test::binary());
    processes.push_back(std::make_unique<Background>(
        words, std::map<std::string, std::string>{{"RANK", rank},
                                                  {"WORLD_SIZE", "2"},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", port}}));
  }
  for (int wait = 0; wait < 6000 && !fs::exists(killed + "/checkpoints/step_5/state.json") &&
                     !processes[0]->ended();
       ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (const auto& process : processes) kill(process->pid(), SIGKILL);
  for (const auto& process : processes) process->wait();
  ASSERT_TRUE(fs::exists(killed + "/checkpoints"));
  const Outcome outcome = in_processes(1, command("ranking", killed, 1) + steps + " --resume");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("resuming from"));
  expect_same_metrics(killed, whole);
}

TEST_F(DynamicTables, AFullTableEvictsAndWhatHasNoRowUsesTheSharedOne) {
  std::vector<std::string> runs;
  for (const std::string strategy : {"lru", "lfu"}) {
    const std::string path = run(strategy);
    const Outcome outcome =
        in_processes(1, command("retrieval", path, 1) + kFew +
                            " --gin DynamicEmbeddingArgs.evict_strategy='" + strategy + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("table item: up to 9 rows"));
    runs.push_back(path);
    const Outcome evaluated = in_processes(1, "evaluate " + path);
    ASSERT_EQ(evaluated.code, 0) << evaluated.out;
    EXPECT_THAT(evaluated.out, HasSubstr("table item: 15 of 24 ids have no row"));
    const Outcome recommended = in_processes(1, "recommend " + path + " --user 7");
    EXPECT_EQ(recommended.code, 0) << recommended.out;
  }
  EXPECT_NE(metrics_of(runs[0]).back(), metrics_of(runs[1]).back());
}

TEST_F(DynamicTables, ImpossibleSettingsAreRefusedBeforeTraining) {
  const Outcome few =
      in_processes(1, command("retrieval", run("few"), 1) +
                          " --gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=9");
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.out, HasSubstr("reads the rows of all 23 items"));
  const Outcome averaged = in_processes(
      1, command("ranking", run("averaged"), 1) + " --gin OptimizerArgs.average_decay=0.9");
  EXPECT_EQ(averaged.code, 2);
  EXPECT_THAT(averaged.out, HasSubstr("has no averages of its rows"));
}

// The capacity may change between a run and its continuation.
TEST_F(DynamicTables, AnotherCapacityTakesTheRowsOrSaysBothSizes) {
  const std::string part = run("part");
  const std::string rank = " --gin TrainerArgs.max_train_iters=";
  ASSERT_EQ(in_processes(1, command("ranking", part, 1) + rank + "4").code, 0);
  const std::string larger = run("larger"), smaller = run("smaller");
  for (const std::string& copy : {larger, smaller}) {
    fs::copy(part, copy, fs::copy_options::recursive);
  }
  const std::string capacity =
      " --resume --gin item/DynamicEmbeddingArgs.item_vocab_size_or_capacity=";
  const Outcome more =
      in_processes(1, command("ranking", larger, 1) + rank + "8" + capacity + "50");
  EXPECT_EQ(more.code, 0) << more.out;
  const Outcome less =
      in_processes(1, command("ranking", smaller, 1) + rank + "8" + capacity + "7");
  EXPECT_NE(less.code, 0);
  EXPECT_THAT(less.out, HasSubstr("the capacity of the model's is 7"));
}

}  // namespace
}  // namespace seqfuse::dynamic_tables_test
