// The optimisers against torch's own, in double.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "training/optimizer/optimizer.h"

namespace seqfuse::training::optimizer_torch_test {
namespace {

struct TwoWeights : torch::nn::Module {
  torch::Tensor dense, table;
  std::shared_ptr<embeddings::EmbeddingTable> item;  // contains table
  TwoWeights() {
    torch::manual_seed(1);
    dense = register_parameter("dense", torch::randn({37, 5}, torch::kDouble));
    const auto draw = [](int64_t rows) { return torch::randn({rows, 4}, torch::kDouble); };
    item = embeddings::make_table("item", 3000, draw, {});
    struct Tables : torch::nn::Module {};
    auto tables = std::make_shared<Tables>();
    table = tables->register_parameter("item", item->weight());
    register_module("tables", tables);
  }
  embeddings::Tables tables() const { return {item.get()}; }
};

using config::OptimizerKind;

config::OptimizerArgs arguments(OptimizerKind kind) {
  config::OptimizerArgs args;
  args.optimizer_str = kind;
  args.learning_rate = 0.01;
  args.adam_beta2 = 0.98;
  args.weight_decay = 0.1;
  return args;
}

// The same random gradients, step by step, for both.
template <class TorchOptimizer, class Options>
void compare(OptimizerKind kind, Options options) {
  TwoWeights ours, theirs;
  Optimizer optimizer(ours, arguments(kind), ours.tables());
  // Weight decay applies to everything but tables.
  std::vector<torch::optim::OptimizerParamGroup> groups;
  auto with_decay = std::make_unique<Options>(options),
       without = std::make_unique<Options>(options);
  with_decay->weight_decay(0.1);
  without->weight_decay(0);
  groups.emplace_back(std::vector<torch::Tensor>{theirs.dense}, std::move(with_decay));
  groups.emplace_back(std::vector<torch::Tensor>{theirs.table}, std::move(without));
  TorchOptimizer reference(groups, options);
  for (int step = 0; step < 20; ++step) {
    const torch::Tensor dense = torch::randn_like(ours.dense),
                        table = torch::randn_like(ours.table);
    ours.dense.mutable_grad() = dense * 4;
    ours.table.mutable_grad() = table * 4;
    theirs.dense.mutable_grad() = dense;
    theirs.table.mutable_grad() = table;
    optimizer.step(0.01, 0.25);
    reference.step();
  }
  EXPECT_LT((ours.dense - theirs.dense).abs().max().template item<double>(), 1e-12)
      << name_of(kind);
  EXPECT_LT((ours.table - theirs.table).abs().max().template item<double>(), 1e-12)
      << name_of(kind);
}

TEST(Optimizer, AdamWEqualsTorch) {
  compare<torch::optim::AdamW>(OptimizerKind::adamw,
                               torch::optim::AdamWOptions(0.01).betas({0.9, 0.98}));
}

TEST(Optimizer, AdamEqualsTorch) {
  compare<torch::optim::Adam>(OptimizerKind::adam,
                              torch::optim::AdamOptions(0.01).betas({0.9, 0.98}));
}

TEST(Optimizer, SgdEqualsTorch) {
  compare<torch::optim::SGD>(OptimizerKind::sgd, torch::optim::SGDOptions(0.01));
}

TEST(Optimizer, AveragesAreThoseOfTheWeights) {
  TwoWeights module;
  config::OptimizerArgs args = arguments(OptimizerKind::adamw);
  args.average_decay = 0.8;
  Optimizer optimizer(module, args, module.tables());
  torch::Tensor average, weights;
  for (int step = 0; step < 50; ++step) {
    module.dense.mutable_grad() = torch::randn_like(module.dense);
    module.table.mutable_grad() = torch::randn_like(module.table);
    optimizer.step(0.01, 1);
    weights = module.dense.detach().clone();
    // The first updates weigh nearly the same; from update 38 on the decay is 0.8.
    const double keep = std::min(0.8, step / (step + 9.0));
    average = step == 0 ? weights : keep * average + (1 - keep) * weights;
  }
  {
    const Optimizer::Averages averages(optimizer);
    EXPECT_LT((module.dense - average).abs().max().item<double>(), 1e-12);
    EXPECT_TRUE(torch::equal(optimizer.state().at("dense.unaveraged"), weights));
  }
  EXPECT_TRUE(torch::equal(module.dense, weights));
  // After loading weights, nothing of the old average is left.
  torch::NoGradGuard no_grad;
  module.dense.fill_(7);
  optimizer.start_averages(/*saved=*/false);
  const Optimizer::Averages averages(optimizer);
  EXPECT_TRUE(module.dense.eq(7).all().item<bool>());
}

TEST(Optimizer, StateWithAveragesIsRefusedWithoutThem) {
  TwoWeights module;
  config::OptimizerArgs args = arguments(OptimizerKind::sgd);
  args.average_decay = 0.9;
  const embeddings::StateTensors state = Optimizer(module, args, module.tables()).state();
  args.average_decay = 0;
  Optimizer without(module, args, module.tables());
  try {
    without.load_state(state, 3);
    FAIL() << "the average was taken for the weights";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("OptimizerArgs.average_decay is 0"), std::string::npos)
        << error.what();
  }
}

TEST(Optimizer, RowWiseAdagradForTablesBesideAnotherForTheRest) {
  TwoWeights module;
  config::OptimizerArgs args = arguments(OptimizerKind::sgd);
  args.embedding_optimizer_str = OptimizerKind::row_wise_adagrad;
  args.weight_decay = 0;
  Optimizer optimizer(module, args, module.tables());
  torch::Tensor expected = module.table.detach().clone();
  torch::Tensor sum = torch::zeros({3000, 1}, torch::kDouble);
  const torch::Tensor dense = module.dense.detach().clone();
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor gradient = torch::randn_like(expected);
    module.table.mutable_grad() = gradient;
    module.dense.mutable_grad() = torch::ones_like(dense);
    optimizer.step(0.1, 1);
    sum += gradient.square().mean(1, true);
    expected -= 0.1 * gradient / (sum.sqrt() + args.adam_eps);
  }
  EXPECT_LT((module.table - expected).abs().max().item<double>(), 1e-12);
  EXPECT_LT((module.dense - (dense - 0.5)).abs().max().item<double>(), 1e-12);
}

TEST(Optimizer, SparseGradientsUpdateTheirRowsAlone) {
  TwoWeights sparse, dense;
  Optimizer sparse_optimizer(sparse, arguments(OptimizerKind::adam), sparse.tables());
  Optimizer dense_optimizer(dense, arguments(OptimizerKind::adam), dense.tables());
  const torch::Tensor before = sparse.table.detach().clone();
  // Id 7 twice: the two rows are summed.
  const torch::Tensor ids = torch::tensor({{int64_t{7}, int64_t{2900}, int64_t{7}}});
  const torch::Tensor rows = torch::randn({3, 4}, torch::kDouble);
  const torch::Tensor gradient = torch::sparse_coo_tensor(ids, rows, {3000, 4});
  sparse.table.mutable_grad() = gradient;
  dense.table.mutable_grad() = gradient.to_dense();
  EXPECT_NEAR(sparse_optimizer.gradient_norm(0.5), dense_optimizer.gradient_norm(0.5), 1e-12);
  sparse_optimizer.step(0.01, 1);
  dense_optimizer.step(0.01, 1);
  EXPECT_LT((sparse.table - dense.table).abs().max().item<double>(), 1e-14);
  // In a second step without those ids, momentum moves the dense rows but not the sparse ones.
  const torch::Tensor after = sparse.table.detach().clone();
  const torch::Tensor other =
      torch::sparse_coo_tensor(torch::tensor({{int64_t{5}}}), rows.slice(0, 0, 1), {3000, 4});
  sparse.table.mutable_grad() = other;
  dense.table.mutable_grad() = other.to_dense();
  sparse_optimizer.step(0.01, 1);
  dense_optimizer.step(0.01, 1);
  EXPECT_TRUE(sparse.table[7].equal(after[7]));
  EXPECT_FALSE(dense.table[7].equal(after[7]));
  EXPECT_TRUE(sparse.table[0].equal(before[0]));
}

TEST(Optimizer, GradientNormIsOverAllParameters) {
  TwoWeights module;
  const Optimizer optimizer(module, arguments(OptimizerKind::sgd), module.tables());
  module.dense.mutable_grad() = torch::full_like(module.dense, 2);
  module.table.mutable_grad() = torch::full_like(module.table, 1);
  EXPECT_NEAR(optimizer.gradient_norm(0.5), 0.5 * std::sqrt(4.0 * 37 * 5 + 3000 * 4), 1e-9);
}

TEST(Optimizer, StateContinuesWhereItWasSaved) {
  TwoWeights whole, parted;
  Optimizer first(whole, arguments(OptimizerKind::adamw), whole.tables());
  auto second =
      std::make_unique<Optimizer>(parted, arguments(OptimizerKind::adamw), parted.tables());
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      embeddings::StateTensors saved;
      for (const auto& [name, tensor] : second->state()) saved[name] = tensor.clone();
      const int64_t steps = second->steps();
      second =
          std::make_unique<Optimizer>(parted, arguments(OptimizerKind::adamw), parted.tables());
      second->load_state(saved, steps);
    }
    const torch::Tensor gradient = torch::randn_like(whole.dense);
    whole.dense.mutable_grad() = gradient;
    parted.dense.mutable_grad() = gradient;
    first.step(0.01, 1);
    second->step(0.01, 1);
  }
  EXPECT_TRUE(whole.dense.equal(parted.dense));
  EXPECT_THROW(second->load_state({}, 3), DataError);
}

TEST(Optimizer, AnyNumberOfThreadsGivesTheSameWeights) {
  const int threads = num_threads();
  std::vector<torch::Tensor> results;
  for (const int count : {1, 3}) {
    set_num_threads(count);
    TwoWeights module;
    Optimizer optimizer(module, arguments(OptimizerKind::adamw), module.tables());
    torch::manual_seed(5);
    module.table.mutable_grad() = torch::randn_like(module.table);
    optimizer.step(0.01, 1);
    results.push_back(module.table.detach().clone());
  }
  set_num_threads(threads);
  EXPECT_TRUE(results[0].equal(results[1]));
}

}  // namespace
}  // namespace seqfuse::training::optimizer_torch_test
