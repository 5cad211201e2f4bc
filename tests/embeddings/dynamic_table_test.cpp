// Dynamic tables in training: new ids, repeated ids, optimisers against torch's, admission, unknown ids,
// checkpoints.
#include "embeddings/dynamic_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "embeddings/update/update_step.h"
#include "tests/embeddings/counting_table.h"
#include "tests/missing_gpu.h"

namespace seqfuse::embeddings::dynamic_table_test {
namespace {

constexpr double kRate = 0.01, kScale = 0.25;

config::OptimizerArgs arguments() {
  config::OptimizerArgs args;
  args.adam_beta2 = 0.98;
  args.weight_decay = 0.1;  // does not apply to tables
  return args;
}

DynamicRowsOptions options_of(int64_t capacity, int64_t dim = 3, at::Device device = at::kCPU) {
  DynamicRowsOptions options;
  options.table.name = "item";
  options.table.capacity = capacity;
  options.table.dim = dim;
  options.table.device = device;
  options.table.init = {.kind = RowInit::normal, .a = 0, .b = 0.5, .seed = 3};
  return options;
}

class DynamicTableTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device().is_cuda()) {
      if (const char* why = test::missing_gpu()) GTEST_SKIP() << why;
    }
  }
  at::Device device() const { return at::Device(GetParam()); }
  at::Tensor ids(const std::vector<int64_t>& values) const { return ids_from(values).to(device()); }

  std::shared_ptr<DynamicTable> table_of_options(const DynamicRowsOptions& options) const {
    return std::make_shared<DynamicTable>(options, 50, distributed::ProcessGroup::single());
  }
  std::shared_ptr<DynamicTable> table(int64_t capacity, int64_t dim = 3) const {
    return table_of_options(options_of(capacity, dim, device()));
  }

  // One step of `batches` equal batches with gradients [n, dim].
  void step(DynamicTable& table, int64_t number, const at::Tensor& ids, const at::Tensor& gradients,
            int batches = 1) const {
    table.zero_gradients();
    for (int batch = 0; batch < batches; ++batch) {
      table.fetch(ids);
      (table.lookup(ids) * gradients).sum().backward();
    }
    table.return_gradients();
    if (device().is_cpu()) {
      UpdateStep update(args_, number, kRate, kScale);
      table.apply_gradients(update);
      return;
    }
    const auto scalar = [&](double value) {
      return torch::full({}, value, torch::TensorOptions(device()).dtype(torch::kFloat));
    };
    UpdateStep update(args_, {.count = scalar(static_cast<double>(number)),
                              .learning_rate = scalar(kRate),
                              .gradient_scale = scalar(kScale),
                              .skip = scalar(0)});
    table.apply_gradients(update);
  }

  at::Tensor read(DynamicTable& table, const std::vector<int64_t>& values) const {
    const torch::NoGradGuard no_grad;
    table.fetch(ids(values));
    return table.lookup(ids(values)).cpu();
  }

  template <class TorchOptimizer, class Options>
  void compare_with_torch(OptimizerKind kind, const Options& options, int64_t dim) const {
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", dim " << dim);
    const auto mine = table(100, dim);
    mine->make_state(kind, /*averaged=*/false);
    const std::vector<int64_t> all = {-4, 7, 12, int64_t{1} << 60};
    mine->fetch(ids(all));
    at::Tensor theirs = read(*mine, all).clone().set_requires_grad(true);
    TorchOptimizer reference(std::vector<at::Tensor>{theirs}, options);
    torch::manual_seed(4);
    for (int64_t number = 1; number <= 20; ++number) {
      const at::Tensor gradient = torch::randn({5, dim});
      // 7 twice.
      step(*mine, number, ids({7, int64_t{1} << 60, -4, 7, 12}), gradient.to(device()), 2);
      theirs.mutable_grad() =
          at::stack({gradient[2], gradient[0] + gradient[3], gradient[4], gradient[1]}) * 2 *
          kScale;
      reference.step();
    }
    EXPECT_LT((read(*mine, all) - theirs.detach()).abs().max().template item<double>(), 2e-6);
  }

  config::OptimizerArgs args_ = arguments();
};

TEST_P(DynamicTableTest, EqualsTorchsOptimisers) {
  for (const int64_t dim : {3, 129}) {
    compare_with_torch<torch::optim::Adam>(
        OptimizerKind::adam, torch::optim::AdamOptions(kRate).betas({0.9, 0.98}), dim);
    compare_with_torch<torch::optim::AdamW>(
        OptimizerKind::adamw, torch::optim::AdamWOptions(kRate).betas({0.9, 0.98}).weight_decay(0),
        dim);
    compare_with_torch<torch::optim::SGD>(OptimizerKind::sgd, torch::optim::SGDOptions(kRate), dim);
  }
  compare_with_torch<torch::optim::Adagrad>(OptimizerKind::row_wise_adagrad,
                                            torch::optim::AdagradOptions(kRate).eps(1e-8), 1);
}

// The rows as a plain tensor of all ids: the sum over a row's columns makes Adagrad row-wise.
TEST_P(DynamicTableTest, RowWiseAdagradScalesARowByTheMeanOfItsSquares) {
  const auto mine = table(100, 5);
  mine->make_state(OptimizerKind::row_wise_adagrad, false);
  mine->fetch(ids({9}));
  at::Tensor expected = read(*mine, {9}).clone();
  double sum = 0;
  torch::manual_seed(1);
  for (int64_t number = 1; number <= 5; ++number) {
    const at::Tensor gradient = torch::randn({1, 5});
    step(*mine, number, ids({9}), gradient.to(device()));
    sum += (gradient * kScale).square().mean().item<double>();
    expected -= kRate * kScale * gradient / (std::sqrt(sum) + args_.adam_eps);
  }
  EXPECT_TRUE(at::allclose(read(*mine, {9}), expected, 1e-5, 1e-6));
}

TEST_P(DynamicTableTest, NewIdsHaveRowsThatDependOnTheIdAlone) {
  const auto one = table(100), other = table(1000);
  one->fetch(ids({5, -1, 8}));
  other->fetch(ids({8}));
  other->fetch(ids({-1, 5, 5}));
  EXPECT_EQ(one->rows_here(), 3);
  EXPECT_TRUE(read(*one, {8, 5, -1}).equal(read(*other, {8, 5, -1})));
  EXPECT_FALSE(read(*one, {8}).equal(read(*one, {5})));
}

TEST_P(DynamicTableTest, EvaluationReadsTheSharedRowForUnknownIdsAndInsertsNone) {
  const auto mine = table(100);
  mine->fetch(ids({1, 2}));
  const at::Tensor rows = read(*mine, {1, 77, 2, 78, 77});
  const at::Tensor shared = mine->dynamic_rows().shared_row().cpu();
  EXPECT_GT(shared.abs().sum().item<float>(), 0);
  for (const int64_t unknown : {1, 3, 4}) EXPECT_TRUE(rows[unknown].equal(shared));
  EXPECT_FALSE(rows[0].equal(shared));
  EXPECT_EQ(mine->dynamic_rows().unknown(), 3);
  EXPECT_EQ(mine->rows_here(), 2);
  const torch::NoGradGuard no_grad;
  mine->fetch_all();
  EXPECT_EQ(mine->rows().size(0), 50);
  EXPECT_TRUE(mine->rows()[2].cpu().equal(rows[2]));
}

TEST_P(DynamicTableTest, IdsAreAdmittedByFrequency) {
  DynamicRowsOptions options = options_of(100, 3, device());
  options.admit_from = 3;
  options.table.score = Score::lfu;
  const auto mine = table_of_options(options);
  mine->make_state(OptimizerKind::sgd, false);
  const at::Tensor shared = mine->dynamic_rows().shared_row().cpu();
  step(*mine, 1, ids({1, 1, 2}), torch::ones({3, 3}).to(device()));
  EXPECT_EQ(mine->rows_here(), 0);
  EXPECT_TRUE(read(*mine, {1})[0].equal(shared));  // and no gradient has moved it
  read(*mine, {1});                                // evaluation does not count
  mine->fetch(ids({2, 1, 3, 3, 3, 3}));            // 1: the third time; 3: four times at once
  EXPECT_EQ(mine->rows_here(), 2);
  EXPECT_FALSE(read(*mine, {1})[0].equal(shared));
  const TableContents saved = mine->contents();
  EXPECT_EQ(saved.state.at("counted_ids").numel(), 1);  // 2, which is not saved as a row
  EXPECT_EQ(saved.state.at("counted_ids").item<int64_t>(), 2);
  EXPECT_EQ(saved.state.at("counted_scores").item<int64_t>(), 2);
  EXPECT_EQ(saved.state.at("scores").sum().item<int64_t>(), 3 + 4);

  const auto loaded = table_of_options(options);
  loaded->make_state(OptimizerKind::sgd, false);
  loaded->load(saved, {});
  loaded->fetch(ids({2}));
  EXPECT_EQ(loaded->rows_here(), 3);
}

TEST_P(DynamicTableTest, ABatchBeyondTheCapacityIsAnError) {
  DynamicRowsOptions options = options_of(10, 3, device());
  const auto mine = table_of_options(options);
  const at::Tensor many = torch::arange(25, torch::kLong).to(device());
  const auto fetch = [&] {
    mine->fetch(many);
    if (device().is_cuda()) const_cast<DynamicRows&>(mine->dynamic_rows()).check_failures();
  };
  EXPECT_THROW(
      {
        try {
          fetch();
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("table item: 15 ids"),
                                                   testing::HasSubstr("10 rows")));
          throw;
        }
      },
      Error);
  EXPECT_EQ(mine->rows_here(), 10);
  options.failure_is_error = false;
  const auto tolerant = table_of_options(options);
  tolerant->fetch(many);
  EXPECT_EQ(tolerant->lookup(many)
                .cpu()
                .eq(tolerant->dynamic_rows().shared_row().cpu())
                .all(1)
                .sum()
                .item<int64_t>(),
            15);
  EXPECT_EQ(tolerant->dynamic_rows().table().counts().failed, 15);
}

TEST_P(DynamicTableTest, FailuresAreReportedOnceAndAgainAfterClear) {
  DynamicRows rows(options_of(10, 3, device()));
  const at::Tensor many = torch::arange(25, torch::kLong).to(device());
  const auto fail = [&] {
    rows.fetch(many, {});
    rows.check_failures();
  };
  EXPECT_THROW(fail(), Error);
  for (int i = 0; i < 3; ++i) {
    rows.fetch(ids({1, 2}), {});
    rows.check_failures();
  }
  rows.find(ids({77}));
  rows.clear();
  EXPECT_EQ(rows.table().size(), 0);
  EXPECT_EQ(rows.unknown(), 0);
  EXPECT_THROW(fail(), Error);
}

TEST_P(DynamicTableTest, WrongScoresAreRefusedBeforeAnythingIsCounted) {
  DynamicRowsOptions options = options_of(10, 3, device());
  options.table.score = Score::custom;
  options.admit_from = 2;
  DynamicRows rows(options);
  EXPECT_THROW(rows.fetch(ids({1, 2}), {}), UsageError);
  EXPECT_THROW(rows.fetch(ids({1, 2}), {.custom = ids({1})}), UsageError);
  EXPECT_EQ(rows.contents().counted.size(), 0);
  rows.fetch(ids({1, 2}), {.custom = ids({1, 1})});
  EXPECT_EQ(rows.contents().counted.size(), 2);
  rows.clear();
  EXPECT_EQ(rows.contents().counted.size(), 0);
}

TEST_P(DynamicTableTest, LoadsRowsAndFrequenciesOrNothing) {
  DynamicRowsOptions options = options_of(10, 3, device());
  options.admit_from = 2;
  const auto saving = table_of_options(options);
  saving->fetch(ids({1, 1, 2, 3, 4}));
  const TableContents saved = saving->contents();
  ASSERT_EQ(saved.state.at("counted_ids").numel(), 3);
  options.table.init.seed = 4;
  const auto other = table_of_options(options);
  other->fetch(ids({7, 7, 8, 8}));
  TableContents repeated = saved, few_scores = saved, wide = saved;
  repeated.state["counted_ids"] = ids({2, 2, 3});
  few_scores.state["counted_scores"] = ids({1});
  wide.state[kSharedRow] = torch::zeros({4});
  for (const TableContents& damaged : {repeated, few_scores, wide}) {
    EXPECT_THROW(other->check(damaged, {}), DataError);
    EXPECT_THROW(other->load(damaged, {}), DataError);
    EXPECT_EQ(other->rows_here(), 2);
  }
  options.counted_ids = 2;
  const auto small = table_of_options(options);
  EXPECT_THROW(small->check(saved, {}), DataError);
  EXPECT_THROW(small->load(saved, {}), DataError);
  EXPECT_EQ(small->rows_here(), 0);

  EXPECT_FALSE(read(*other, {50}).equal(read(*saving, {50})));
  other->load(saved, {});
  EXPECT_EQ(other->rows_here(), 1);
  EXPECT_TRUE(read(*other, {1, 50}).equal(read(*saving, {1, 50})));  // the shared row too
}

TEST_P(DynamicTableTest, ResumesWithTheSameBits) {
  DynamicRowsOptions options = options_of(60, 4, device());
  options.table.in_order = true;
  options.table.initial_capacity = 20;
  options.admit_from = 2;
  const auto run = [&](DynamicTable& table, int64_t from, int64_t to) {
    for (int64_t number = from; number <= to; ++number) {
      const at::Tensor batch = (torch::arange(30, torch::kLong) * 37 * number).remainder(211);
      at::Tensor gradient = torch::arange(120, torch::kFloat).view({30, 4}).sin() * 0.1;
      step(table, number, batch.to(device()), gradient.to(device()));
    }
  };
  const auto make = [&] {
    auto table = table_of_options(options);
    table->make_state(OptimizerKind::adam, false);
    return table;
  };
  const auto whole = make(), first = make(), second = make();
  run(*whole, 1, 60);
  run(*first, 1, 33);
  second->load(first->contents(), {});
  run(*second, 34, 60);
  const TableContents expected = whole->contents(), actual = second->contents();
  EXPECT_EQ(expected.size(), 60);
  EXPECT_GT(whole->dynamic_rows().table().counts().evicted, 50);
  EXPECT_TRUE(actual.ids.equal(expected.ids));
  EXPECT_TRUE(actual.rows.equal(expected.rows));
  for (const auto& [name, tensor] : expected.state) {
    EXPECT_TRUE(actual.state.at(name).equal(tensor)) << name;
  }
}

// Runs of equal ids that are longer than a warp's piece, begin and end in it, or are its only one.
TEST_P(DynamicTableTest, SumsOfFewIdsThatAreMostOfABatch) {
  torch::manual_seed(2);
  for (const int64_t count : {1, 127, 128, 129, 5000}) {
    for (const int64_t dim : {1, 3, 128, 130, 260}) {
      SCOPED_TRACE(testing::Message() << count << " ids, dim " << dim);
      at::Tensor batch = torch::randint(-40, 40, {count}, torch::kLong);
      batch.masked_fill_(torch::rand({count}).lt(0.5), 7)
          .masked_fill_(torch::rand({count}).lt(0.2), -1);
      const at::Tensor gradients = torch::randn({count, dim});
      const auto unique = ops::hash_table::unique_ids(batch.to(device()));
      const at::Tensor sums = ops::hash_table::sum_by_id(unique, gradients.to(device())).cpu();
      const auto [ids, inverse, often] = at::_unique2(batch, true, true, true);
      const at::Tensor expected = torch::zeros({ids.numel(), dim}, torch::kDouble)
                                      .index_add_(0, inverse, gradients.to(torch::kDouble));
      const int64_t used = ids.numel();
      EXPECT_TRUE(unique.ids.cpu().slice(0, 0, used).equal(ids));
      EXPECT_TRUE(unique.often.cpu().slice(0, 0, used).equal(often));
      EXPECT_TRUE(at::allclose(sums.slice(0, 0, used).to(torch::kDouble), expected, 1e-5, 1e-4));
      EXPECT_EQ(sums.slice(0, used).abs().sum().item<float>(), 0);
    }
  }
}

// Rows in the host's memory, behind a cache or not, are the same rows.
TEST_P(DynamicTableTest, RowsAreTheSameInAnyPlace) {
  const auto train = [&](int64_t device_rows, bool cached) {
    DynamicRowsOptions options = options_of(200, 4, device());
    options.table.in_order = true;
    options.table.initial_capacity = 30;
    options.table.device_rows = device_rows;
    options.table.cached = cached;
    options.table.list_evicted = 10'000;
    auto table = table_of_options(options);
    table->make_state(OptimizerKind::adam, false);
    for (int64_t number = 1; number <= 40; ++number) {
      const at::Tensor batch = (torch::arange(60, torch::kLong) * 37 * number).remainder(451);
      const at::Tensor gradient = torch::arange(240, torch::kFloat).view({60, 4}).sin() * 0.1;
      step(*table, number, batch.to(device()), gradient.to(device()), 1 + number % 2);
      const_cast<DynamicRows&>(table->dynamic_rows()).table().erase(ids({number}));
    }
    return table;
  };
  const auto plain = train(int64_t{1} << 40, false);
  const TableContents expected = plain->contents();
  EXPECT_GT(plain->dynamic_rows().table().counts().evicted, 100);
  const auto evicted = const_cast<DynamicRows&>(plain->dynamic_rows()).table().take_evicted();
  for (const auto& [device_rows, cached] :
       {std::pair<int64_t, bool>{0, false}, {77, false}, {20, true}, {100, true}, {200, true}}) {
    SCOPED_TRACE(testing::Message() << device_rows << (cached ? " cached" : ""));
    const auto other = train(device_rows, cached);
    const TableContents actual = other->contents();
    EXPECT_TRUE(actual.ids.equal(expected.ids));
    EXPECT_TRUE(actual.rows.equal(expected.rows));
    EXPECT_TRUE(actual.state.at("exp_avg_sq").equal(expected.state.at("exp_avg_sq")));
    EXPECT_TRUE(read(*other, {3, 70, 9999}).equal(read(*plain, {3, 70, 9999})));
    const auto gone = const_cast<DynamicRows&>(other->dynamic_rows()).table().take_evicted();
    EXPECT_TRUE(gone.ids.equal(evicted.ids));
    EXPECT_TRUE(gone.scores.equal(evicted.scores));
  }
}

// Cut off to integers, 0.2 and 0.7 would be the same score.
TEST_P(DynamicTableTest, ScoresThatAreNotIntegersAreRefused) {
  DynamicRowsOptions options = options_of(10, 3, device());
  options.table.score = Score::custom;
  DynamicRows rows(options);
  const at::Tensor scores = torch::tensor({0.2F, 0.7F});
  EXPECT_THROW(rows.fetch(ids({1, 2}), {.custom = scores}), UsageError);
  EXPECT_EQ(rows.table().size(), 0);
}

// As serving does, which has a row for each id.
TEST_P(DynamicTableTest, ATableWithAFixedVocabularyLoadsItsRows) {
  const auto mine = table(100);
  mine->make_state(OptimizerKind::adam, false);
  step(*mine, 1, ids({1, 4, 1}), torch::ones({3, 3}).to(device()));
  const auto fixed =
      make_table("item", 6, [](int64_t rows) { return torch::zeros({rows, 3}); }, {});
  fixed->weight().set_requires_grad(true);
  fixed->make_state(OptimizerKind::adam, false);
  TableContents saved = mine->contents();
  saved.rows = saved.rows.cpu();
  saved.ids = saved.ids.cpu();
  for (auto& [name, tensor] : saved.state) tensor = tensor.cpu();
  TableContents before = fixed->contents();
  for (auto& [name, tensor] : before.state) tensor = torch::full_like(tensor, 5);
  fixed->load(before, {});
  fixed->load(saved, {});
  EXPECT_TRUE(fixed->weight().detach().equal(read(*mine, {0, 1, 2, 3, 4, 5})));
  EXPECT_GT(fixed->contents().state.at("exp_avg")[1].abs().sum().item<float>(), 0);
  EXPECT_EQ(fixed->contents().state.at("exp_avg")[0].abs().sum().item<float>(), 0);
  saved.state[kSharedRow] = torch::zeros({1});
  EXPECT_THROW(fixed->check(saved, {}), DataError);

  // And back: a checkpoint of a table with a row for each id.
  const auto again = table(100);
  again->make_state(OptimizerKind::adam, false);
  again->load(fixed->contents(), {});
  EXPECT_TRUE(
      read(*again, {0, 1, 5}).equal(fixed->weight().detach().index_select(0, ids_from({0, 1, 5}))));
}

TEST_P(DynamicTableTest, RefusesContentsThatDoNotFit) {
  const auto mine = table(10);
  mine->make_state(OptimizerKind::adam, false);
  mine->fetch(ids({1}));
  TableContents given;
  given.rows = torch::zeros({11, 3});
  EXPECT_THROW(mine->load(given, {.state = false}), DataError);
  given.rows = torch::zeros({2, 4});
  EXPECT_THROW(mine->load(given, {.state = false}), DataError);
  given.rows = torch::zeros({2, 3});
  EXPECT_THROW(mine->load(given, {}), DataError);  // no state of Adam
  given.ids = ids_from({4, 4});
  EXPECT_THROW(mine->load(given, {.state = false}), DataError);
  EXPECT_EQ(mine->rows_here(), 1);
  given.ids = ids_from({4, -9});
  mine->load(given, {.state = false});
  EXPECT_EQ(mine->rows_here(), 2);
  EXPECT_THROW(mine->make_state(OptimizerKind::adam, /*averaged=*/true), UsageError);
}

TEST_P(DynamicTableTest, EmptyBatchesAndStepsWithoutGradients) {
  const auto mine = table(10);
  mine->make_state(OptimizerKind::adam, false);
  step(*mine, 1, ids({}), torch::zeros({0, 3}).to(device()));
  EXPECT_EQ(mine->rows_here(), 0);
  UpdateStep update(args_, 1, kRate, kScale);
  mine->apply_gradients(update);
  EXPECT_FALSE(mine->gradient().defined());
}

INSTANTIATE_TEST_SUITE_P(Cpu, DynamicTableTest, testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Cuda, DynamicTableTest, testing::Values("cuda"));

}  // namespace
}  // namespace seqfuse::embeddings::dynamic_table_test
