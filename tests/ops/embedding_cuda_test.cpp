#include "ops/kernels/jagged/row_sums.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/embedding.h"

namespace seqfuse::embedding_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  int64_t rows, dim, count;
};

class EmbeddingCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// One id for all (its sorted terms are split among eight warps), none, few ids, many; one, two and
// four columns per lane; rows of several column ranges.
INSTANTIATE_TEST_SUITE_P(
    Shapes, EmbeddingCudaTest,
    testing::Combine(testing::Values(Case{1, 1, 1}, Case{1, 50, 700}, Case{7, 3, 40}, Case{5, 8, 0},
                                     Case{6, 64, 3000}, Case{3953, 50, 2000}, Case{300, 128, 999},
                                     Case{40, 257, 999}, Case{20, 1023, 300}, Case{70000, 2, 3000}),
                     cuda_types()));

struct Problem {
  Tensor table, dout, ids;  // on the GPU

  Problem(const Case& c, at::ScalarType type)
      : table(random({c.rows, c.dim}, type).cuda()),
        dout(random({c.count, c.dim}, type).cuda()),
        ids(at::randint(c.rows, {c.count}, at::kLong).cuda()) {}

  std::vector<Tensor> run(bool sparse) const {
    return with_gradients([&](auto& in) { return ops::embedding_lookup(in[0], ids, sparse); },
                          {table}, dout);
  }
};

TEST_P(EmbeddingCudaTest, CopiesRowsAndSumsGradients) {
  const auto [c, type] = GetParam();
  const Problem problem(c, type);
  const auto plain = with_gradients([&](auto& in) { return in[0].index_select(0, problem.ids); },
                                    {problem.table}, problem.dout);
  const std::vector<Tensor> reference{
      oracle::embedding(to64(problem.table), problem.ids.cpu()),
      oracle::embedding_backward(to64(problem.dout), problem.ids.cpu(), c.rows)};
  const auto by_atomics = problem.run(false);
  EXPECT_TRUE(at::equal(to64(by_atomics[0]), reference[0]));
  expect_oracle_rule(by_atomics[1], plain[1], reference[1], 5, "dtable, by atomics");
  const Deterministic deterministic;
  const auto sorted = problem.run(false);
  expect_oracle_rule(sorted[1], plain[1], reference[1], 5, "dtable, from sorted terms");
  expect_equal(problem.run(false), sorted, "run to run");
}

TEST_P(EmbeddingCudaTest, SparseGradientIsNotCoalesced) {
  const auto [c, type] = GetParam();
  const Problem problem(c, type);
  const Tensor gradient = problem.run(true)[1];
  ASSERT_TRUE(gradient.is_sparse());
  EXPECT_FALSE(gradient.is_coalesced());
  EXPECT_TRUE(at::equal(gradient._indices()[0], problem.ids));
  EXPECT_TRUE(at::equal(gradient._values(), problem.dout));
  EXPECT_EQ(gradient.sizes(), problem.table.sizes());
}

TEST_P(EmbeddingCudaTest, StridedInputsGiveTheSameBits) {
  const auto [c, type] = GetParam();
  const Problem problem(c, type);
  const Tensor expected = problem.table.index_select(0, problem.ids);
  const Tensor ids = at::stack({problem.ids, problem.ids}, 1).select(1, 0);
  EXPECT_TRUE(at::equal(ops::embedding_lookup(transposed(problem.table), ids, false), expected));
  EXPECT_TRUE(at::equal(ops::embedding_lookup(with_row_gaps(problem.table), ids, false), expected));
}

#ifdef SEQFUSE_HAS_CUDA
// Tests the kernel with pointers for each width: rows and sums on 16-byte boundaries, and off.
TEST_P(EmbeddingCudaTest, WritesTheSumsAndNothingElse) {
  const auto [c, type] = GetParam();
  const Problem problem(c, type);
  const auto [sorted, order] = at::sort(problem.ids.to(at::kInt), /*stable=*/true, 0, false);
  const Tensor expected = oracle::embedding_backward(to64(problem.dout), problem.ids.cpu(), c.rows);
  for (const bool by_order : {false, true}) {
    for (const int64_t shift : {0, 1, 4}) {
      const int64_t size = c.rows * c.dim;
      const Tensor memory =
          at::full({size + 2 * shift + 8}, std::nan(""), problem.dout.options().dtype(at::kFloat));
      const Tensor sums = memory.slice(0, shift, shift + size);
      if (!by_order) sums.zero_();  // atomics add to it
      C10_CUDA_CHECK(ops::row_sums_cuda(
          {.terms = {.rows = problem.dout.const_data_ptr(),
                     .ids = problem.ids.const_data_ptr<int64_t>(),
                     .more_ids = nullptr,
                     .weights = nullptr,
                     .positions = c.count,
                     .columns = 1,
                     .dim = c.dim,
                     .num_rows = c.rows},
           .sums = sums.mutable_data_ptr<float>(),
           .sorted_ids = by_order ? sorted.template const_data_ptr<int32_t>() : nullptr,
           .order = by_order ? order.template const_data_ptr<int64_t>() : nullptr},
          kernel_dtype(type), c10::cuda::getCurrentCUDAStream()));
      const std::string what =
          (by_order ? "sorted terms, shift " : "atomics, shift ") + std::to_string(shift);
      if (by_order && c.count == 0) continue;  // an empty order is null, which means atomics
      EXPECT_LE(max_abs(to64(sums).view({c.rows, c.dim}) - expected),
                1e-5 * (1 + max_abs(expected)))
          << what;
      EXPECT_TRUE(memory.slice(0, 0, shift).isnan().all().item<bool>()) << what << ": before";
      EXPECT_TRUE(memory.slice(0, shift + size).isnan().all().item<bool>()) << what << ": behind";
    }
  }
}
#endif

class EmbeddingCuda : public CudaTest {};

TEST_F(EmbeddingCuda, SumsEqualIdsInOrderOfPositionWhenDeterministic) {
  // In float, (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
  const Deterministic deterministic;
  const Tensor dout = torch::tensor({1e8F, 1.F, -1e8F, 1e8F, -1e8F, 1.F}).view({6, 1}).cuda();
  const Tensor ids = torch::tensor({2, 2, 2, 0, 0, 0}, at::kLong).cuda();
  const Tensor table = at::zeros({3, 1}).cuda();
  const auto results = with_gradients(
      [&](auto& in) { return ops::embedding_lookup(in[0], ids, false); }, {table}, dout);
  EXPECT_TRUE(at::equal(results[1].view(-1).cpu(), torch::tensor({1.F, 0.F, 0.F})));
}

TEST_F(EmbeddingCuda, ArgumentsElsewhereAreNamed) {
  expect_error(
      [] { ops::embedding_lookup(at::zeros({3, 2}).cuda(), at::zeros({1}, at::kLong), false); },
      "embedding_lookup: ids is on cpu; expected cuda:0, where the other arguments are");
}

}  // namespace
}  // namespace seqfuse::embedding_cuda_test
