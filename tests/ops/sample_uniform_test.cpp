#include "tests/oracles/sample_uniform.h"
#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"

namespace seqfuse::sample_uniform_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

TEST(SampleUniform, SamplesAreThoseOfPhiloxByPlace) {
  const Tensor pool = at::randperm(5000, at::kLong).slice(0, 0, 3706);
  for (const auto& [rows, per_row] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 5}, {5, 0}, {1, 1}, {3, 21}, {1, 64}, {5, 13}, {50, 128}}) {
    const Tensor samples = ops::sample_uniform(pool, rows, per_row, -9);
    ASSERT_EQ(samples.scalar_type(), at::kInt);
    ASSERT_EQ(samples.sizes(), (std::vector<int64_t>{rows, per_row}));
    const Tensor expected =
        oracle::sample_uniform(pool, rows * per_row, static_cast<uint64_t>(int64_t{-9}));
    EXPECT_TRUE(at::equal(samples.view(-1), expected)) << rows << " x " << per_row;
  }
}

TEST(SampleUniform, EveryIdIsEquallyLikely) {
  constexpr int64_t kIds = 100, kCount = 1000000;
  const Tensor samples = ops::sample_uniform(at::arange(kIds, at::kLong), 1000, 1000, 3);
  const Tensor counts = at::bincount(samples.view(-1), {}, kIds).to(at::kDouble);
  const double expected = static_cast<double>(kCount) / kIds;
  const double chi_squared = ((counts - expected).square() / expected).sum().item<double>();
  EXPECT_LT(chi_squared, 99 + 5 * std::sqrt(2 * 99.));  // 99 degrees of freedom, five deviations
}

TEST(SampleUniform, SeedsAreIndependent) {
  const Tensor pool = at::arange(1000, at::kLong);
  const Tensor a = ops::sample_uniform(pool, 100, 100, 1),
               b = ops::sample_uniform(pool, 100, 100, 2);
  EXPECT_TRUE(at::equal(a, ops::sample_uniform(pool, 100, 100, 1)));
  EXPECT_LT((a == b).sum().item<int64_t>(), 40);  // 10 are expected
}

TEST(SampleUniform, SameBitsForAnyNumberOfThreads) {
  const Tensor pool = at::arange(7, 4000, at::kLong);
  expect_same_for_any_threads(
      [&] { return std::vector<Tensor>{ops::sample_uniform(pool, 3001, 127, 5)}; });
}

TEST(SampleUniform, WrongArgumentsAreExplained) {
  expect_error([] { ops::sample_uniform(at::zeros({0}, at::kLong), 2, 2, 0); },
               "sample_uniform: pool has 0 ids; expected at least 1");
  expect_error([] { ops::sample_uniform(torch::tensor({1, -2}, at::kLong), 2, 2, 0); },
               "sample_uniform: pool[1] is -2");
  expect_error([] { ops::sample_uniform(torch::tensor({1, 2}, at::kInt), 2, 2, 0); },
               "sample_uniform: pool is Int; expected Long (int64)");
  expect_error([] { ops::sample_uniform(at::zeros({2}, at::kLong), -1, 2, 0); },
               "sample_uniform: rows is -1 and per_row is 2");
}

}  // namespace
}  // namespace seqfuse::sample_uniform_test
