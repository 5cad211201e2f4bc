// Tables that update their own rows, against torch's optimisers, and sharded against replicated.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "embeddings/table.h"
#include "embeddings/update/update_step.h"
#include "tests/distributed/processes.h"
#include "tests/embeddings/counting_table.h"

namespace seqfuse::embeddings::table_update_test {
namespace {

using distributed::in_processes;
using distributed::ProcessGroup;

constexpr double kRate = 0.01, kScale = 0.25;

config::OptimizerArgs arguments() {
  config::OptimizerArgs args;
  args.adam_beta2 = 0.98;
  args.weight_decay = 0.1;  // does not apply to tables
  args.average_decay = 0.8;
  return args;
}

// A replicated table of random double rows.
std::shared_ptr<EmbeddingTable> random_table(int64_t num_rows, int64_t dim,
                                             const Placement& placement = {}) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto draw = [&](int64_t rows) {
    return torch::empty({rows, dim}, torch::kDouble).uniform_(-1, 1, generator);
  };
  auto table = make_table("item", num_rows, draw, placement);
  table->weight().set_requires_grad(true);
  return table;
}

// Backward passes of two batches whose gradients are the given rows.
void accumulate(EmbeddingTable& table, const at::Tensor& ids, const at::Tensor& gradient) {
  for (int batch = 0; batch < 2; ++batch) {
    table.fetch(ids);
    (table.lookup(ids) * gradient).sum().backward();
  }
  table.return_gradients();
}

// Every step has the same ids, one of them twice, so that sparse and dense Adam agree.
template <class TorchOptimizer, class Options>
void compare_with_torch(OptimizerKind kind, const Options& options, int64_t num_rows, int64_t dim) {
  SCOPED_TRACE(testing::Message() << num_rows << " rows, kind " << static_cast<int>(kind));
  const config::OptimizerArgs args = arguments();
  const auto table = random_table(num_rows, dim);
  table->make_state(kind, /*averaged=*/false);
  const at::Tensor ids = ids_from({7, num_rows - 1, 0, 7, 12});
  const at::Tensor before = table->weight().detach().clone();
  at::Tensor theirs = before.index_select(0, ids_from({0, 7, 12, num_rows - 1}));
  theirs.set_requires_grad(true);
  TorchOptimizer reference(std::vector<at::Tensor>{theirs}, options);
  torch::manual_seed(4);
  for (int64_t step = 1; step <= 20; ++step) {
    const at::Tensor gradient = torch::randn({5, dim}, torch::kDouble);
    table->zero_gradients();
    accumulate(*table, ids, gradient);
    EXPECT_EQ(table->weight().grad().is_sparse(), num_rows >= kSparseTableRows);
    UpdateStep update(args, step, kRate, kScale);
    table->apply_gradients(update);
    update.finish();
    // Two batches times the scale.
    theirs.mutable_grad() =
        at::stack({gradient[2], gradient[0] + gradient[3], gradient[4], gradient[1]}) * 2 * kScale;
    reference.step();
  }
  at::Tensor expected = before.clone();
  expected.index_copy_(0, ids_from({0, 7, 12, num_rows - 1}), theirs.detach());
  EXPECT_LT((table->weight() - expected).abs().max().template item<double>(), 1e-12);
}

TEST(TableUpdate, EqualsTorchsOptimisersWithDenseAndSparseGradients) {
  for (const int64_t num_rows : {int64_t{300}, kSparseTableRows + 5}) {
    compare_with_torch<torch::optim::Adam>(
        OptimizerKind::adam, torch::optim::AdamOptions(kRate).betas({0.9, 0.98}), num_rows, 3);
    compare_with_torch<torch::optim::AdamW>(
        OptimizerKind::adamw, torch::optim::AdamWOptions(kRate).betas({0.9, 0.98}).weight_decay(0),
        num_rows, 3);
    compare_with_torch<torch::optim::SGD>(OptimizerKind::sgd, torch::optim::SGDOptions(kRate),
                                          num_rows, 3);
    // For rows of one number, row-wise Adagrad is Adagrad.
    compare_with_torch<torch::optim::Adagrad>(OptimizerKind::row_wise_adagrad,
                                              torch::optim::AdagradOptions(kRate).eps(1e-8),
                                              num_rows, 1);
  }
}

TEST(TableUpdate, AveragesFollowTheRowsAndChangePlacesWithThem) {
  const config::OptimizerArgs args = arguments();
  const auto table = random_table(300, 3);
  table->make_state(OptimizerKind::adam, /*averaged=*/true);
  at::Tensor average;
  for (int64_t step = 1; step <= 50; ++step) {
    table->zero_gradients();
    accumulate(*table, ids_from({3, 5}), torch::ones({2, 3}, torch::kDouble));
    UpdateStep update(args, step, kRate, 1);
    table->apply_gradients(update);
    update.finish();
    const double keep = std::min(0.8, (step - 1) / (step + 8.0));
    const at::Tensor rows = table->weight().detach();
    average = step == 1 ? rows.clone() : keep * average + (1 - keep) * rows;
  }
  const at::Tensor rows = table->weight().detach().clone();
  EXPECT_GT((rows - average).abs().max().item<double>(), 1e-3);
  table->swap_averages();
  EXPECT_TRUE(at::allclose(table->weight(), average, 0, 1e-12));
  const TableContents saved = table->contents();
  EXPECT_TRUE(saved.rows.equal(table->weight()));
  EXPECT_TRUE(saved.state.at("unaveraged").equal(rows));
  table->swap_averages();
  EXPECT_TRUE(table->weight().equal(rows));
  table->restart_averages();
  table->swap_averages();
  EXPECT_TRUE(table->weight().equal(rows));
}

TEST(TableUpdate, WithoutAGradientNothingButTheAverageMoves) {
  const config::OptimizerArgs args = arguments();
  const auto table = random_table(300, 3);
  table->make_state(OptimizerKind::adam, /*averaged=*/false);
  EXPECT_FALSE(table->gradient().defined());
  const at::Tensor before = table->weight().detach().clone();
  UpdateStep update(args, 1, kRate, 1);
  table->apply_gradients(update);
  update.finish();
  EXPECT_TRUE(table->weight().equal(before));
}

TEST(TableUpdate, ATableWithoutStateIsAnError) {
  const config::OptimizerArgs args = arguments();
  const auto table = random_table(300, 3);
  UpdateStep update(args, 1, kRate, 1);
  EXPECT_THROW(table->apply_gradients(update), Error);
}

// The ids that a process looks up in a step: different in each process, none in one of them.
at::Tensor ids_of_step(int rank, int64_t step, int64_t num_rows) {
  if ((rank + step) % 3 == 2) return ids_from({});
  return (torch::arange(40) * (rank + 3) + 11 * step).remainder(num_rows);
}

// Rows and state after six steps in one process, with the gradients of all processes added up.
TableContents updated_whole(OptimizerKind kind, int64_t num_rows, int processes) {
  const config::OptimizerArgs args = arguments();
  const auto table = random_table(num_rows, 3);
  table->make_state(kind, /*averaged=*/true);
  for (int64_t step = 1; step <= 6; ++step) {
    std::vector<at::Tensor> ids, gradients;
    for (int rank = 0; rank < processes; ++rank) {
      ids.push_back(ids_of_step(rank, step, num_rows));
      gradients.push_back(torch::full({ids.back().numel(), 3}, rank + 0.5, torch::kDouble));
    }
    table->zero_gradients();
    accumulate(*table, at::cat(ids), at::cat(gradients));
    UpdateStep update(args, step, kRate, kScale);
    table->apply_gradients(update);
    update.finish();
  }
  return table->contents();
}

TEST(ShardedTableUpdateDeathTest, EqualsReplicated) {
  for (const int64_t num_rows : {int64_t{300}, kSparseTableRows + 5}) {
    for (const auto kind : {OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::sgd,
                            OptimizerKind::row_wise_adagrad}) {
      in_processes(3, [&](ProcessGroup& group) {
        const config::OptimizerArgs args = arguments();
        const auto table = random_table(
            num_rows, 3,
            {.group = &group, .sharding_types = {{"item", config::Sharding::model_parallel}}});
        EXPECT_TRUE(table->is_sharded());
        table->make_state(kind, /*averaged=*/true);
        for (int64_t step = 1; step <= 6; ++step) {
          const at::Tensor ids = ids_of_step(group.rank(), step, num_rows);
          table->zero_gradients();
          accumulate(*table, ids,
                     torch::full({ids.numel(), 3}, group.rank() + 0.5, torch::kDouble));
          UpdateStep update(args, step, kRate, kScale);
          table->apply_gradients(update);
          update.finish();
        }
        const TableContents found = table->contents();
        EXPECT_EQ(found.rows.defined(), group.is_first());
        if (!group.is_first()) return;
        const TableContents expected = updated_whole(kind, num_rows, 3);
        EXPECT_FALSE(found.ids.defined());
        EXPECT_TRUE(at::allclose(found.rows, expected.rows, 0, 1e-12));
        ASSERT_EQ(found.state.size(), expected.state.size());
        for (const auto& [name, tensor] : expected.state) {
          EXPECT_TRUE(at::allclose(found.state.at(name), tensor, 1e-12, 1e-12)) << name;
        }
      });
    }
  }
}

}  // namespace
}  // namespace seqfuse::embeddings::table_update_test
