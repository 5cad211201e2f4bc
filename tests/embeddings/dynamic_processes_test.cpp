// Dynamic tables in several processes against one, and what is dealt to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "embeddings/dynamic_table.h"
#include "embeddings/update/update_step.h"
#include "tests/distributed/processes.h"

namespace seqfuse::embeddings::dynamic_processes_test {
namespace {

using distributed::in_processes;
using distributed::ProcessGroup;

DynamicRowsOptions options_of(int64_t capacity, bool cached = false) {
  DynamicRowsOptions options;
  options.table.name = "item";
  options.table.capacity = capacity;
  options.table.initial_capacity = 16;
  options.table.dim = 3;
  options.table.score = Score::lfu;
  options.table.cached = cached;
  if (cached) options.table.device_rows = 12;
  options.table.init = {.kind = RowInit::normal, .a = 0, .b = 0.5, .seed = 3};
  return options;
}

at::Tensor ids_of_batch(int64_t number, int64_t part) {
  return (torch::arange(24, torch::kLong) * 37 * (number + part)).remainder(61) - 5;
}

// Trains with the share of rank; of one process: with all shares. ahead: each batch brings rows of the next.
void train(DynamicTable& table, int64_t from, int64_t to, int shares, int rank,
           bool ahead = false) {
  config::OptimizerArgs args;
  for (int64_t number = from; number <= to; ++number) {
    table.zero_gradients();
    for (int64_t part = 0; part < 2; ++part) {  // two batches a step
      // The last share of a step is empty.
      const at::Tensor all = ids_of_batch(number, part);
      const at::Tensor gradients = torch::arange(72, torch::kFloat).view({24, 3}).sin();
      const int64_t each = 24 / std::max(1, shares - 1);
      const int64_t begin = shares == 1 ? 0 : std::min<int64_t>(24, rank * each);
      const int64_t end = shares == 1 ? 24 : std::min<int64_t>(24, begin + each);
      const at::Tensor ids = all.slice(0, begin, end);
      table.fetch(ids);
      const at::Tensor loss = (table.lookup(ids) * gradients.slice(0, begin, end)).sum();
      if (ahead) table.prefetch(ids_of_batch(number + part, 1 - part).slice(0, begin, end));
      loss.backward();
    }
    table.return_gradients();
    UpdateStep update(args, number, 0.01, 0.25);
    table.apply_gradients(update);
  }
}

std::unique_ptr<DynamicTable> make(int64_t capacity, ProcessGroup& group, IdDealing dealing = {},
                                   bool cached = false) {
  auto table = std::make_unique<DynamicTable>(options_of(capacity, cached), 70, group, dealing);
  table->make_state(OptimizerKind::adam, false);
  return table;
}

// Rows by id, since slots differ.
at::Tensor sorted_rows(const TableContents& contents) {
  return contents.rows.index_select(0, at::argsort(contents.ids));
}

void expect_same(const TableContents& actual, const TableContents& expected) {
  EXPECT_TRUE(std::get<0>(actual.ids.sort()).equal(std::get<0>(expected.ids.sort())));
  EXPECT_TRUE(at::allclose(sorted_rows(actual), sorted_rows(expected), 1e-5, 1e-6));
  const auto scores = [](const TableContents& contents) {
    return contents.state.at("scores").index_select(0, at::argsort(contents.ids));
  };
  EXPECT_TRUE(scores(actual).equal(scores(expected)));
}

// Each process trains the whole table too: the parent must not run a backward pass before it forks.
TEST(DynamicProcessesDeathTest, SeveralTrainTheRowsOfOneAndAnyNumberGoesOn) {
  for (const auto kind :
       {IdDealing::Kind::hashed, IdDealing::Kind::modulo, IdDealing::Kind::continuous}) {
    in_processes(3, [&](ProcessGroup& group) {
      const auto whole = make(1000, ProcessGroup::single());
      train(*whole, 1, 4, 1, 0);
      const TableContents middle = whole->contents();
      train(*whole, 5, 8, 1, 0);
      const TableContents expected = whole->contents();
      const IdDealing dealing{.kind = kind, .range = 57};
      const auto table = make(1000, group, dealing);
      train(*table, 1, 4, 3, group.rank());
      const TableContents saved = table->contents();
      if (group.is_first()) {
        expect_same(saved, middle);
        // In one process.
        const auto one = make(1000, ProcessGroup::single());
        one->load(saved, {});
        train(*one, 5, 8, 1, 0);
        expect_same(one->contents(), expected);
      } else {
        EXPECT_EQ(saved.size(), 0);
      }
      // In as many, with the same slots; and from one.
      for (const bool from_one : {false, true}) {
        const auto again = make(1000, group, dealing);
        again->load(from_one && group.is_first() ? middle : saved, {});
        if (!from_one) {
          EXPECT_EQ(again->rows_here(), table->rows_here());
        }
        train(*again, 5, 8, 3, group.rank());
        const TableContents result = again->contents();
        if (group.is_first()) expect_same(result, expected);
      }
    });
  }
}

// The same slots, so what is evicted next is the same too.
TEST(DynamicProcessesDeathTest, AsManyProcessesGoOnWithTheSameBitsAndEvictions) {
  in_processes(2, [&](ProcessGroup& group) {
    const auto whole = make(20, group), first = make(20, group), second = make(20, group);
    train(*whole, 1, 30, 2, group.rank());
    train(*first, 1, 13, 2, group.rank());
    second->load(first->contents(), {});
    train(*second, 14, 30, 2, group.rank());
    EXPECT_GT(whole->dynamic_rows().table().counts().evicted, 10);
    const TableContents expected = whole->contents(), actual = second->contents();
    if (!group.is_first()) return;
    EXPECT_TRUE(actual.ids.equal(expected.ids));
    EXPECT_TRUE(actual.rows.equal(expected.rows));
    for (const auto& [name, tensor] : expected.state) {
      EXPECT_TRUE(actual.state.at(name).equal(tensor)) << name;
    }
  });
}

// Rows of the next batch that come early are the same rows. The cache has 12 of a process's 20 rows.
TEST(DynamicProcessesDeathTest, RowsThatComeEarlyAreTheSame) {
  in_processes(2, [&](ProcessGroup& group) {
    const auto plain = make(20, group), ahead = make(20, group, {}, /*cached=*/true);
    train(*plain, 1, 12, 2, group.rank());
    train(*ahead, 1, 12, 2, group.rank(), /*ahead=*/true);
    EXPECT_GT(plain->dynamic_rows().table().counts().evicted, 0);
    const TableContents expected = plain->contents(), actual = ahead->contents();
    if (!group.is_first()) return;
    EXPECT_TRUE(actual.ids.equal(expected.ids));
    EXPECT_TRUE(actual.rows.equal(expected.rows));
    for (const auto& [name, tensor] : expected.state) {
      EXPECT_TRUE(actual.state.at(name).equal(tensor)) << name;
    }
  });
}

TEST(DynamicProcessesDeathTest, EvaluationInsertsNothingAndCountsUnknownIdsAtTheirOwners) {
  in_processes(2, [&](ProcessGroup& group) {
    const auto table = make(1000, group);
    train(*table, 1, 2, 2, group.rank());
    const int64_t before = table->rows_here();
    const torch::NoGradGuard no_grad;
    const at::Tensor ids = torch::tensor({int64_t{5'000'000'000}, int64_t{-77}}, torch::kLong);
    table->fetch(ids);
    EXPECT_TRUE(table->lookup(ids)[0].equal(table->dynamic_rows().shared_row()));
    EXPECT_EQ(table->rows_here(), before);
    double unknown = static_cast<double>(table->dynamic_rows().unknown());
    group.sum({&unknown, 1}, "test");
    EXPECT_EQ(unknown, 4);
    table->fetch_all();
    EXPECT_EQ(table->rows().size(0), 70);
  });
}

TEST(IdDealing, SpreadsIdsWithAPatternUnlessAskedNotTo) {
  const at::Tensor eights = torch::arange(80'000, torch::kLong) * 8,
                   wide = torch::arange(80'000, torch::kLong) * (int64_t{1} << 34) -
                          (int64_t{1} << 40);
  for (const at::Tensor& ids : {eights, wide}) {
    const at::Tensor loads = at::bincount(IdDealing().owners(ids, 8), {}, 8);
    EXPECT_LE(loads.max().item<int64_t>(), 1.05 * 10'000);
  }
  const at::Tensor some = torch::tensor({int64_t{-3}, int64_t{0}, int64_t{5}, int64_t{99}});
  EXPECT_TRUE(IdDealing{.kind = IdDealing::Kind::modulo}.owners(some, 4).equal(
      torch::tensor({int64_t{1}, int64_t{0}, int64_t{1}, int64_t{3}})));
  EXPECT_TRUE((IdDealing{.kind = IdDealing::Kind::continuous, .range = 10}.owners(some, 4).equal(
      torch::tensor({int64_t{0}, int64_t{0}, int64_t{1}, int64_t{3}}))));
}

TEST(IdDealing, EachProcessHasRoomForWhatAHashDeals) {
  EXPECT_EQ(capacity_of_process(100, 1), 100);
  EXPECT_EQ(capacity_of_process(8, 2), 8);
  EXPECT_EQ(capacity_of_process(1'000'000, 4), 250'000 + 3000 + 1);
}

}  // namespace
}  // namespace seqfuse::embeddings::dynamic_processes_test
