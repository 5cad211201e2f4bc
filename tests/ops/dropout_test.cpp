#include "ops/kernels/step/dropout.h"
#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/dropout.h"

namespace seqfuse::dropout_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

TEST(Dropout, FactorsAreThoseOfPhiloxByPlace) {
  for (const int64_t count : {0, 1, 63, 64, 65, 2048, 2049, 5000}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const Tensor expected = oracle::dropout_factors(count, .3, 9).to(type);
      EXPECT_TRUE(at::equal(ops::dropout(at::ones({count}, type), .3, 9), expected)) << count;
    }
  }
}

TEST(Dropout, KeepsTheMeanAndTheRate) {
  constexpr int64_t kCount = 1 << 20;
  for (const double p : {.1, .2, .5, .9}) {
    const Tensor y = ops::dropout(at::ones({kCount}), p, 1234);
    const double dropped = (y == 0).to(at::kDouble).mean().item<double>();
    const double deviation = std::sqrt(p * (1 - p) / kCount);
    EXPECT_NEAR(dropped, p, 5 * deviation);
    EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1, 5 * deviation / (1 - p));
  }
}

TEST(Dropout, RowsColumnsAndSeedsAreIndependent) {
  constexpr int64_t kRows = 512, kDim = 200;
  constexpr double p = .5;
  const auto mask = [&](int64_t seed) {
    return ops::dropout(at::ones({kRows, kDim}, at::kDouble), p, seed) -
           1;  // -1 or 1: mean 0, variance 1
  };
  const Tensor m = mask(1);
  // The correlation of two independent rows of n signs has deviation 1 / sqrt(n); 6 deviations
  // never occur.
  const auto largest = [](const Tensor& correlations) {
    Tensor c = correlations.clone();
    c.fill_diagonal_(0);
    return max_abs(c);
  };
  EXPECT_LT(largest(m.mm(m.t()) / kDim), 6 / std::sqrt(kDim));
  EXPECT_LT(largest(m.t().mm(m) / kRows), 6 / std::sqrt(kRows));
  EXPECT_LT(std::abs((m * mask(2)).mean().item<double>()), 5 / std::sqrt(kRows * kDim));
}

TEST(Dropout, GradientIsTheMask) {
  at::manual_seed(1);
  expect_gradients([](auto& in) { return ops::dropout(in[0], .4, 5); }, {random({9, 13})});
  const Tensor x = at::ones({300, 7}).requires_grad_();
  const Tensor y = ops::dropout(x, .4, 5);
  y.sum().backward();  // an expanded gradient
  EXPECT_TRUE(at::equal(x.grad(), y));
}

TEST(Dropout, StridesDoNotChangeTheMask) {
  at::manual_seed(2);
  const Tensor x = random({70, 33});
  EXPECT_TRUE(at::equal(ops::dropout(with_row_gaps(x), .2, 5), ops::dropout(x, .2, 5)));
  EXPECT_TRUE(at::equal(ops::dropout(transposed(x), .2, 5), ops::dropout(x, .2, 5)));
}

TEST(Dropout, WritesItsOutputAndNothingElse) {
  for (const int64_t count : {1, 64, 2100}) {
    const Tensor x = at::ones({count}, at::kFloat);
    const GuardedMatrix y(1, count, x.options());
    ops::dropout_forward_cpu(
        {.x = x.const_data_ptr(), .y = y.data(), .count = count, .p = .2, .seed = 3}, DType::f32);
    y.check("y");
  }
}

TEST(Dropout, SameBitsForAnyNumberOfThreads) {
  const Tensor x = random({200, 301}, at::kFloat);
  expect_same_for_any_threads([&] { return std::vector<Tensor>{ops::dropout(x, .2, 5)}; });
}

TEST(Dropout, ZeroReturnsTheInput) {
  const Tensor x = random({3, 4});
  EXPECT_TRUE(ops::dropout(x, 0, 1).is_same(x));
}

TEST(Dropout, WrongArgumentsAreExplained) {
  const Tensor x = random({3, 4});
  expect_error([&] { ops::dropout(x, -.1, 1); },
               "dropout: the dropout probability is -0.1; expected 0 <= p < 1");
  expect_error([&] { ops::dropout(x.to(at::kHalf), .1, 1); },
               "dropout: x is Half; expected Float or Double");
}

}  // namespace
}  // namespace seqfuse::dropout_test
