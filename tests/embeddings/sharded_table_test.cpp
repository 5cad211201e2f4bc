// Tables sharded over real processes.
#include "embeddings/sharded_table.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <signal.h>

#include "base/error.h"
#include "tests/distributed/processes.h"
#include "tests/embeddings/counting_table.h"

namespace seqfuse::embeddings::sharded_table_test {
namespace {

using distributed::in_processes;
using distributed::ProcessGroup;
using testing::HasSubstr;

// The ids that each of three processes requests in a batch: repeated ids, none, all of one owner.
at::Tensor ids_asked(int rank, int batch, int64_t num_rows) {
  switch ((rank + batch) % 3) {
    case 0:
      return ids_from({7, num_rows - 1, 7, 0, 12, 7, 12});
    case 1:
      return ids_from({});
    default: {
      const at::Tensor skewed = ids_of(1, 3, num_rows).slice(0, 0, 20);
      return at::cat({skewed.flip(0), skewed});
    }
  }
}

TEST(ShardedTableDeathTest, LookupGivesTheRowsOfAllProcesses) {
  // Two rows: one of three processes has none.
  for (const int64_t num_rows : {2, 50}) {
    in_processes(3, [&](ProcessGroup& group) {
      const auto table = table_of(num_rows, group);
      EXPECT_TRUE(table->is_sharded());
      EXPECT_EQ(table->num_rows(), num_rows);
      EXPECT_EQ(table->dim(), kDim);
      for (int batch = 0; batch < 3 && num_rows == 50; ++batch) {
        const at::Tensor ids = ids_asked(group.rank(), batch, num_rows);
        table->fetch(ids);
        EXPECT_TRUE(table->lookup(ids).equal(all_rows(num_rows).index_select(0, ids))) << batch;
        const at::Tensor some = ids.slice(0, 1);
        EXPECT_TRUE(table->lookup(some).equal(all_rows(num_rows).index_select(0, some))) << batch;
      }
      fetch_nothing({table.get()});  // in all processes
      EXPECT_EQ(table->lookup(ids_from({})).sizes(), (at::IntArrayRef{0, kDim}));
      table->fetch_all();
      EXPECT_TRUE(table->rows().equal(all_rows(num_rows)));
    });
  }
}

// Batches whose losses are sums of the rows times a factor of the process and the batch.
TEST(ShardedTableDeathTest, GradientsOfAccumulatedBatchesReachTheOwnersOnce) {
  for (const int64_t num_rows : {int64_t{50}, kSparseTableRows + 5}) {
    in_processes(3, [&](ProcessGroup& group) {
      const auto table = table_of(num_rows, group);
      at::Tensor expected = torch::zeros({num_rows, kDim});
      for (int step = 0; step < 2; ++step) {
        at::Tensor(table->weight()).mutable_grad().reset();
        expected.zero_();
        for (int batch = 0; batch < 3; ++batch) {
          const auto factor = [&](int rank) {
            // In the second batch one process has no loss.
            return batch == 1 && rank == 2 ? 0.0F : 1.0F + static_cast<float>(rank + 10 * batch);
          };
          const at::Tensor ids = ids_asked(group.rank(), batch, num_rows);
          table->fetch(ids);
          if (factor(group.rank()) != 0) {
            // Two lookups, like those of histories and targets.
            (factor(group.rank()) * (table->lookup(ids).sum() + 2 * table->lookup(ids).sum()))
                .backward();
          }
          for (int rank = 0; rank < 3; ++rank) {
            const at::Tensor asked = ids_asked(rank, batch, num_rows);
            expected.index_add_(0, asked, torch::full({asked.numel(), kDim}, 3 * factor(rank)));
          }
        }
        table->return_gradients();
        table->return_gradients();  // nothing is left to return
        const at::Tensor gradient = table->weight().grad();
        EXPECT_EQ(gradient.is_sparse(), num_rows >= kSparseTableRows);
        EXPECT_TRUE(
            gradient.to_dense().equal(expected.index_select(0, ids_of(group.rank(), 3, num_rows))))
            << "step " << step;
      }
    });
  }
}

TEST(ShardedTableDeathTest, EvaluationLeavesNoGradient) {
  in_processes(2, [&](ProcessGroup& group) {
    const auto table = table_of(50, group);
    {
      const torch::NoGradGuard no_grad;
      table->fetch(ids_from({1, 2}));
    }
    table->return_gradients();
    EXPECT_FALSE(table->weight().grad().defined());
  });
}

TEST(ShardedTableDeathTest, ContentsAreGatheredAndSpreadInTheOrderOfIds) {
  const int64_t num_rows = 1000;
  in_processes(3, [&](ProcessGroup& group) {
    const auto table = table_of(num_rows, group);
    // One number per row.
    table->make_state(OptimizerKind::row_wise_adagrad, /*averaged=*/false);
    const at::Tensor gathered = table->contents().rows;
    ASSERT_EQ(gathered.defined(), group.is_first());
    TableContents given;
    if (group.is_first()) {
      EXPECT_TRUE(gathered.equal(all_rows(num_rows)));
      // Given in float64.
      given.rows = all_rows(num_rows).to(torch::kDouble) * 2;
      given.state["sum_sq"] = torch::arange(num_rows, torch::kDouble);
    }
    table->load(given, {});
    const at::Tensor own = ids_of(group.rank(), 3, num_rows);
    EXPECT_TRUE(table->weight().equal(all_rows(num_rows).index_select(0, own) * 2));
    const TableContents back = table->contents();
    if (group.is_first()) {
      EXPECT_TRUE(back.rows.equal(all_rows(num_rows) * 2));
      EXPECT_TRUE(back.state.at("sum_sq").equal(torch::arange(num_rows, torch::kFloat)));
    }
  });
}

TEST(ShardedTableDeathTest, InitialRowsAreThoseOfOneProcess) {
  const int64_t num_rows = 150'000;  // several blocks of draws
  in_processes(2, [&](ProcessGroup& group) {
    const auto make = [&](const Placement& placement) {
      at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
      const auto draw = [&](int64_t rows) {
        return torch::empty({rows, 2}).uniform_(-1, 1, generator);
      };
      return make_table("item", num_rows, draw, placement);
    };
    const at::Tensor gathered =
        make({.group = &group, .sharding_types = {{"item", config::Sharding::data_parallel}}})
            ->contents()
            .rows;
    const auto sharded =
        make({.group = &group, .sharding_types = {{"item", config::Sharding::model_parallel}}});
    EXPECT_TRUE(sharded->is_sharded());
    const at::Tensor all = sharded->contents().rows;
    ASSERT_EQ(all.defined(), group.is_first());
    if (group.is_first()) {
      EXPECT_TRUE(all.equal(gathered));
    }
  });
}

TEST(ShardedTableDeathTest, WrongCallsSayWhatIsWrong) {
  in_processes(2, [&](ProcessGroup& group) {
    const auto table = table_of(50, group);
    const auto error = [](const auto& call) {
      try {
        call();
      } catch (const Error& e) {
        return std::string(e.what());
      }
      return std::string("no error");
    };
    EXPECT_THAT(error([&] { table->lookup(ids_from({1})); }),
                HasSubstr("item: lookup without fetch"));
    table->fetch(ids_from({1, 3, 49}));
    EXPECT_THAT(error([&] { table->lookup(ids_from({3, 2})); }), HasSubstr("was not fetched"));
    EXPECT_THAT(error([&] { table->rows(); }), HasSubstr("without fetch_all"));
    EXPECT_THAT(error([&] { table->fetch(ids_from({50})); }), HasSubstr("id 50 is not in it"));
  });
}

TEST(PlacementDeathTest, AutoShardsLargeTablesOfSeveralProcesses) {
  Placement alone{.sharding_types = {{"item", config::Sharding::model_parallel}}};
  EXPECT_FALSE(alone.shards("item", kSparseTableRows));
  in_processes(2, [&](ProcessGroup& group) {
    const Placement placement{.group = &group,
                              .sharding_types = {{"spread", config::Sharding::model_parallel},
                                                 {"whole", config::Sharding::data_parallel},
                                                 {"by_size", config::Sharding::by_size}}};
    EXPECT_TRUE(placement.shards("spread", 2));
    EXPECT_FALSE(placement.shards("whole", 10 * kSparseTableRows));
    EXPECT_TRUE(placement.shards("by_size", kSparseTableRows));
    EXPECT_FALSE(placement.shards("by_size", kSparseTableRows - 1));
    EXPECT_TRUE(placement.shards("unlisted", kSparseTableRows));
  });
}

// Rank 1 of three dies between the exchanges of a lookup.
TEST(ShardedTableDeathTest, AProcessThatDiesWithinALookupIsNamed) {
  const int port = free_port();
  distributed::ForkedProcesses processes(3, [&](int rank) {
    at::set_num_threads(1);
    ProcessGroup group(distributed::launch_of(rank, 3, port), at::kCPU, 2);
    const auto table = table_of(50, group);
    if (rank == 1) {
      group.all_to_all(ids_from({1, 1, 1}), {1, 1, 1}, {1, 1, 1}, "exchange of counts");
      raise(SIGKILL);
    }
    table->fetch(torch::arange(50));
  });
  const auto ended = processes.wait();
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(ended[rank].exited_with(1)) << ended[rank].err;
    EXPECT_THAT(ended[rank].err, HasSubstr("waited in exchange of ids of table item"));
  }
  // The second process to notice may see that the first has ended.
  EXPECT_THAT(ended[0].err + ended[2].err, HasSubstr("rank 1 (process"));
}

}  // namespace
}  // namespace seqfuse::embeddings::sharded_table_test
