// Sharded tables on two GPUs, exchanging through NCCL.
#include <gtest/gtest.h>

#include <filesystem>

#include "embeddings/sharded_table.h"
#include "tests/distributed/processes.h"
#include "tests/embeddings/counting_table.h"

namespace seqfuse::embeddings::sharded_table_cuda_test {
namespace {

using distributed::ProcessGroup;

// CUDA must not be initialised before the processes start.
bool two_gpus() {
  return std::filesystem::exists("/dev/nvidia0") && std::filesystem::exists("/dev/nvidia1");
}

// Accumulated batches; in the last, process 1 requests nothing and has no loss.
void check_lookups_and_gradients(ProcessGroup& group, at::Device device, int64_t num_rows) {
  const auto table = table_of(num_rows, group, device);
  const at::Tensor all = all_rows(num_rows).to(device);
  at::Tensor expected = torch::zeros_like(all);
  for (int batch = 0; batch < 3; ++batch) {
    const auto asked = [&](int rank) {
      if (batch == 2 && rank == 1) return ids_from({}).to(device);
      return (torch::arange(2000, torch::kLong) * (rank + 7) + batch)
          .remainder(num_rows)
          .to(device);
    };
    const at::Tensor ids = asked(group.rank());
    table->fetch(ids);
    const at::Tensor rows = table->lookup(ids);
    EXPECT_TRUE(rows.equal(all.index_select(0, ids))) << num_rows << " rows, batch " << batch;
    if (ids.numel() > 0) (rows.sum() * (group.rank() + 1)).backward();
    for (int rank = 0; rank < 2; ++rank) {
      expected.index_add_(
          0, asked(rank),
          torch::full({asked(rank).numel(), kDim}, rank + 1.0F, expected.options()));
    }
  }
  table->return_gradients();
  const at::Tensor own = ids_of(group.rank(), 2, num_rows).to(device);
  const at::Tensor gradient = table->weight().grad();
  EXPECT_EQ(gradient.is_sparse(), num_rows >= kSparseTableRows);
  EXPECT_TRUE(gradient.to_dense().equal(expected.index_select(0, own))) << num_rows << " rows";

  // One number per row.
  table->make_state(OptimizerKind::row_wise_adagrad, /*averaged=*/false);
  const at::Tensor gathered = table->contents().rows;
  TableContents given;
  if (group.is_first()) {
    EXPECT_TRUE(gathered.equal(all.cpu()));
    given.ids = torch::arange(num_rows, torch::kLong).flip(0);
    given.rows = 2 * all.cpu().flip(0);
    given.state["sum_sq"] = given.ids.to(torch::kFloat);
  }
  table->load(given, {});
  EXPECT_TRUE(table->weight().equal(2 * all.index_select(0, own)));
  const TableContents back = table->contents();
  if (group.is_first()) {
    EXPECT_TRUE(back.rows.equal(2 * all.cpu()));
    EXPECT_TRUE(back.state.at("sum_sq").equal(torch::arange(num_rows, torch::kFloat)));
  }
  fetch_nothing({table.get()});
}

TEST(ShardedTableCudaDeathTest, TwoGpusGiveRowsAndGradientsOfTheWholeTable) {
  if (!two_gpus()) GTEST_SKIP() << "needs two GPUs";
  for (const bool deterministic : {false, true}) {
    const int port = free_port();
    distributed::ForkedProcesses processes(2, [&](int rank) {
      at::globalContext().setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
      const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(rank));
      const c10::DeviceGuard guard(device);
      ProcessGroup group(distributed::launch_of(rank, 2, port), device,
                         /*rank_timeout_seconds=*/30);
      check_lookups_and_gradients(group, device, 1000);
      check_lookups_and_gradients(group, device, kSparseTableRows + 5);
      group.leave();
    });
    for (const auto& ended : processes.wait()) EXPECT_TRUE(ended.exited_with(0)) << ended.err;
  }
}

}  // namespace
}  // namespace seqfuse::embeddings::sharded_table_cuda_test
