// Tables in checkpoints: ids, rows and state, saved by any number of processes and loaded by any
// other number.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "tests/distributed/processes.h"
#include "tests/embeddings/counting_table.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::embeddings::table_checkpoint_test {
namespace {

using distributed::in_processes;
using distributed::ProcessGroup;
using testing::HasSubstr;
using training::Checkpoint;

constexpr int64_t kRows = 100;

at::Tensor sums_of(const at::Tensor& ids) {
  return ids.to(torch::kFloat) * 3 + 1;
}

// A trained table whose state, one number per row, also encodes ids.
std::shared_ptr<EmbeddingTable> trained_table(ProcessGroup& group, int64_t num_rows = kRows) {
  auto table = table_of(num_rows, group);
  table->make_state(OptimizerKind::row_wise_adagrad, /*averaged=*/false);
  return table;
}

// Rows and state of these ids as in a checkpoint.
TableContents contents_of(const at::Tensor& ids) {
  return {.ids = ids,
          .rows = all_rows(1 << 20).index_select(0, ids),
          .state = {{"sum_sq", sums_of(ids)}}};
}

// Checks the first process's contents.
void expect_whole(const TableContents& found, int64_t num_rows = kRows) {
  EXPECT_FALSE(found.ids.defined());
  EXPECT_TRUE(found.rows.equal(all_rows(num_rows)));
  EXPECT_TRUE(found.state.at("sum_sq").equal(sums_of(torch::arange(num_rows))));
}

TEST(TableCheckpointDeathTest, AnyNumberOfProcessesLoadsWhatAnyOtherSaved) {
  const TemporaryDirectory run;
  const at::Tensor shuffled = torch::randperm(kRows, torch::kLong);
  for (const int before : {1, 2, 3}) {
    in_processes(before, [&](ProcessGroup& group) {
      const auto table = trained_table(group);
      table->load(group.is_first() ? contents_of(shuffled) : TableContents(), {});
      Checkpoint checkpoint{.step = before};
      checkpoint.tables["item"] = table->contents();
      if (group.is_first()) training::save_checkpoint(run.path(), checkpoint, 10);
    });
    const auto saved = run.path() / "checkpoints" / fmt::format("step_{}", before);
    expect_whole(training::load_checkpoint(saved).tables.at("item"));
    for (const int after : {1, 2, 3}) {
      in_processes(after, [&](ProcessGroup& group) {
        EXPECT_EQ(trained_table(group)->is_sharded(), after > 1);
        const auto table = trained_table(group);
        {
          const torch::NoGradGuard no_grad;
          table->weight().zero_();
        }
        TableContents given;
        if (group.is_first()) given = training::load_checkpoint(saved).tables.at("item");
        table->load(given, {});
        const TableContents found = table->contents();
        EXPECT_EQ(found.rows.defined(), group.is_first());
        if (group.is_first()) expect_whole(found);
      });
    }
  }
}

// As with a vocabulary that has grown: rows that are not given stay as they are.
TEST(TableCheckpointDeathTest, SomeIdsInAnyOrderTakeTheirPlaces) {
  for (const int processes : {1, 3}) {
    in_processes(processes, [](ProcessGroup& group) {
      const auto table = trained_table(group);
      const at::Tensor ids = ids_from({99, 3, 0, 42, 17});
      TableContents given = contents_of(ids);
      given.rows = -given.rows.to(torch::kDouble) - 1;  // another dtype
      table->load(group.is_first() ? given : TableContents(), {.all_ids = false});
      const TableContents found = table->contents();
      if (!group.is_first()) return;
      at::Tensor rows = all_rows(kRows), sums = torch::zeros({kRows});
      rows.index_copy_(0, ids, given.rows.to(torch::kFloat));
      sums.index_copy_(0, ids, sums_of(ids));
      EXPECT_TRUE(found.rows.equal(rows));
      EXPECT_TRUE(found.state.at("sum_sq").equal(sums));
    });
  }
}

TEST(TableCheckpointDeathTest, RowsAloneLeaveTheState) {
  for (const int processes : {1, 2}) {
    in_processes(processes, [](ProcessGroup& group) {
      const auto table = trained_table(group);
      TableContents given = contents_of(torch::arange(kRows));
      given.rows = given.rows + 1;
      given.state = {{"exp_avg", torch::ones({kRows, kDim})}};  // of another optimiser
      table->load(group.is_first() ? given : TableContents(), {.state = false});
      const TableContents found = table->contents();
      if (!group.is_first()) return;
      EXPECT_TRUE(found.rows.equal(all_rows(kRows) + 1));
      EXPECT_TRUE(found.state.at("sum_sq").equal(torch::zeros({kRows})));
    });
  }
}

TEST(TableCheckpointDeathTest, RowsOfSeveralBlocksArrive) {
  // A block of 64 MiB is 262,144 rows.
  constexpr int64_t kManyRows = 300'000, kWidth = 64;
  const auto rows_of = [](const at::Tensor& ids) {
    return ids.to(torch::kFloat).unsqueeze(1).expand({-1, kWidth}).contiguous();
  };
  in_processes(2, [&](ProcessGroup& group) {
    const auto draw = [](int64_t rows) { return torch::zeros({rows, kWidth}); };
    const auto table = make_table(
        "item", kManyRows, draw,
        {.group = &group, .sharding_types = {{"item", config::Sharding::model_parallel}}});
    TableContents given;
    if (group.is_first()) {
      given.ids = torch::arange(kManyRows, torch::kLong).flip(0);
      given.rows = rows_of(given.ids);
    }
    table->load(given, {.state = false});
    const at::Tensor rows = table->contents().rows;
    if (!group.is_first()) return;
    EXPECT_TRUE(rows.equal(rows_of(torch::arange(kManyRows))));
  });
}

std::string load_error(const TableContents& given, const LoadOptions& options = {}) {
  const auto table = trained_table(ProcessGroup::single());
  const at::Tensor before = table->weight().detach().clone();
  try {
    table->load(given, options);
  } catch (const DataError& error) {
    EXPECT_TRUE(table->weight().equal(before)) << "half loaded";
    return error.what();
  }
  return "no error";
}

TEST(TableCheckpointDeathTest, RefusesMisfitsWithTheTablesName) {
  const at::Tensor all = torch::arange(kRows);
  EXPECT_EQ(load_error(contents_of(all)), "no error");
  EXPECT_THAT(load_error(contents_of(at::cat({all.slice(0, 0, 42), all.slice(0, 45)}))),
              HasSubstr("table item lacks 3 of the model's 100 ids (the first is 42)"));
  EXPECT_THAT(load_error(contents_of(at::cat({all, ids_from({5, 5, 7})}))),
              HasSubstr("table item has 3 ids more than once"));
  EXPECT_THAT(load_error(contents_of(at::cat({all, ids_from({100})}))),
              HasSubstr("table item has id 100; the model's has ids of at least 0 and below 100"));

  TableContents compact = contents_of(torch::arange(kRows - 1));
  compact.ids.reset();
  EXPECT_THAT(load_error(compact), HasSubstr("table item is [99, 3], the model's is [100, 3]"));
  EXPECT_EQ(load_error(compact, {.all_ids = false}), "no error");

  TableContents wide = contents_of(all);
  wide.rows = torch::ones({kRows, 8});
  EXPECT_THAT(load_error(wide), HasSubstr("table item is [100, 8], the model's is [100, 3]"));
  TableContents fewer_ids = contents_of(all);
  fewer_ids.ids = all.slice(0, 1);
  EXPECT_THAT(load_error(fewer_ids), HasSubstr("ids of table item are Long [99], expected int64"));
  EXPECT_THAT(load_error({}), HasSubstr("has no rows of table item"));

  TableContents adam = contents_of(all);
  adam.state = {{"exp_avg", torch::ones({kRows, kDim})}};
  EXPECT_THAT(load_error(adam),
              HasSubstr("optimiser state of table item is exp_avg, the model's is sum_sq"));
  TableContents none = contents_of(all);
  none.state = {};
  EXPECT_THAT(load_error(none), HasSubstr("state of table item is nothing, the model's is sum_sq"));
  TableContents short_state = contents_of(all);
  short_state.state["sum_sq"] = torch::ones({kRows - 1});
  EXPECT_THAT(load_error(short_state),
              HasSubstr("sum_sq of table item is [99], the model's is [100]"));
}

}  // namespace
}  // namespace seqfuse::embeddings::table_checkpoint_test
