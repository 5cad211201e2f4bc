#include "tests/oracles/embedding.h"
#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"

namespace seqfuse::embedding_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  int64_t rows, dim, count;
};

class EmbeddingTest : public testing::TestWithParam<Case> {};

// One id for all, more ranges of ids than one, widths around the vector widths, many duplicates.
INSTANTIATE_TEST_SUITE_P(Shapes, EmbeddingTest,
                         testing::Values(Case{1, 1, 1}, Case{1, 50, 700}, Case{7, 3, 40},
                                         Case{5, 8, 0}, Case{400, 16, 1000}, Case{3953, 50, 2000},
                                         Case{3000, 257, 999}, Case{70000, 2, 3000}));

TEST_P(EmbeddingTest, CopiesRowsAndSumsGradients) {
  const auto [rows, dim, count] = GetParam();
  at::manual_seed(1);
  const Tensor table = random({rows, dim}, at::kFloat), dout = random({count, dim}, at::kFloat);
  const Tensor ids = at::randint(rows, {count}, at::kLong);
  const auto run = [&](auto&& lookup) {
    const Tensor leaf = table.detach().clone().requires_grad_();
    const Tensor out = lookup(leaf);
    out.backward(dout);
    return std::pair(out, leaf.grad());
  };
  const auto ours = run([&](auto& t) { return ops::embedding_lookup(t, ids, false); });
  const auto plain = run([&](auto& t) { return t.index_select(0, ids); });
  EXPECT_TRUE(at::equal(ours.first.to(at::kDouble), oracle::embedding(table.to(at::kDouble), ids)));
  expect_oracle_rule(ours.second, plain.second,
                     oracle::embedding_backward(dout.to(at::kDouble), ids, rows), 5, "dtable");
  const auto sparse = run([&](auto& t) { return ops::embedding_lookup(t, ids, true); });
  ASSERT_TRUE(sparse.second.is_sparse());
  EXPECT_TRUE(at::equal(sparse.second.to_dense(), ours.second));
  EXPECT_TRUE(at::equal(sparse.second._indices()[0], std::get<0>(at::_unique(ids))));
}

TEST(Embedding, SumsEqualIdsInOrderOfPosition) {
  // In float, (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
  const Tensor dout = torch::tensor({1e8F, 1.F, -1e8F, 1e8F, -1e8F, 1.F}).view({6, 1});
  const Tensor ids = torch::tensor({2, 2, 2, 0, 0, 0}, at::kLong);
  const Tensor table = at::zeros({3, 1}).requires_grad_();
  ops::embedding_lookup(table, ids, false).backward(dout);
  EXPECT_TRUE(at::equal(table.grad().view(-1), torch::tensor({1.F, 0.F, 0.F})));
}

TEST(Embedding, GradientsMatchCentralDifferences) {
  at::manual_seed(2);
  const Tensor ids = torch::tensor({0, 4, 4, 1, 0, 4}, at::kLong);
  expect_gradients([&](auto& in) { return ops::embedding_lookup(in[0], ids, false); },
                   {random({5, 3})});
}

TEST(Embedding, StridedInputsGiveTheSameBits) {
  at::manual_seed(3);
  const Tensor table = random({9, 5}), ids = at::randint(9, {2 * 20}, at::kLong).slice(0, 0, 40, 2);
  const Tensor expected = table.index_select(0, ids);
  EXPECT_TRUE(at::equal(ops::embedding_lookup(transposed(table), ids, false), expected));
  EXPECT_TRUE(at::equal(ops::embedding_lookup(with_row_gaps(table), ids, false), expected));
  const Tensor leaf = table.clone().requires_grad_();
  ops::embedding_lookup(leaf, ids, false).sum().backward();  // an expanded gradient
  EXPECT_TRUE(at::equal(leaf.grad().select(1, 0), at::bincount(ids, {}, 9).to(at::kDouble)));
}

TEST(Embedding, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(4);
  const Tensor table = random({5000, 50}, at::kFloat), dout = random({60000, 50}, at::kFloat);
  const Tensor ids = at::randint(5000, {60000}, at::kLong);
  expect_same_for_any_threads([&] {
    const Tensor leaf = table.detach().requires_grad_();
    const Tensor out = ops::embedding_lookup(leaf, ids, true);
    const Tensor gradient = torch::autograd::grad({out}, {leaf}, {dout})[0];
    EXPECT_TRUE(gradient.is_coalesced());
    return std::vector<Tensor>{out, gradient.indices(), gradient.values()};
  });
}

TEST(Embedding, IsRegisteredWithTorch) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("seqfuse::embedding_lookup", "");
  const Tensor table = random({3, 4}), ids = torch::tensor({2, 0}, at::kLong);
  torch::jit::Stack stack{table, ids, false};
  op.callBoxed(&stack);
  EXPECT_TRUE(at::equal(stack.at(0).toTensor(), table.index_select(0, ids)));
}

TEST(Embedding, WrongArgumentsAreExplained) {
  const Tensor table = random({3, 4});
  const auto lookup = [&](const Tensor& ids) { ops::embedding_lookup(table, ids, false); };
  expect_error([&] { lookup(torch::tensor({0, 2, 3, 5}, at::kLong)); },
               "embedding_lookup: ids[2] is 3; expected an id of at least 0 and below 3, the rows");
  expect_error([&] { lookup(torch::tensor({0, -1}, at::kLong)); }, "ids[1] is -1");
  Tensor far = at::zeros({100000}, at::kLong);
  far[70000] = 9;
  far[99999] = 8;
  expect_error([&] { lookup(far); }, "ids[70000] is 9");
  expect_error([&] { lookup(torch::tensor({0, 1}, at::kInt)); },
               "embedding_lookup: ids is Int; expected Long (int64)");
  expect_error([&] { lookup(at::zeros({2, 2}, at::kLong)); }, "expected [T] (1-D)");
  expect_error([&] { ops::embedding_lookup(random({3}), at::zeros({1}, at::kLong), false); },
               "embedding_lookup: table is [3] (1-D); expected [V, D] (2-D)");
  expect_error([&] { ops::embedding_lookup(random({0, 3}), at::zeros({1}, at::kLong), false); },
               "ids[0] is 0");
}

}  // namespace
}  // namespace seqfuse::embedding_test
