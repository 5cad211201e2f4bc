// Lines and images of functions, on fine grids.
#include <gtest/gtest.h>

#include <cmath>

#include "certify/function.h"

namespace seqfuse::certify_function_test {
namespace {

using certify::Function;
using certify::Interval;

constexpr Function kAll[] = {Function::relu,  Function::gelu_erf, Function::gelu_tanh,
                             Function::tanh,  Function::exp,      Function::reciprocal,
                             Function::rsqrt, Function::square};

// Ends around 0, wide and narrow, equal ones too; of reciprocal and rsqrt above 0.
Interval intervals(Function function, at::ScalarType dtype) {
  at::manual_seed(3);
  const at::Tensor middle = at::randn({400}, at::kDouble) * 3;
  const at::Tensor half = at::pow(10.0, at::rand({400}, at::kDouble) * 9 - 8);
  at::Tensor lo = middle - half, hi = middle + half;
  lo = at::cat({lo, middle.narrow(0, 0, 20)}).to(dtype);
  hi = at::cat({hi, middle.narrow(0, 0, 20)}).to(dtype);
  if (function == Function::reciprocal || function == Function::rsqrt) {
    lo = lo.abs() + 1e-3;
    hi = lo + at::cat({half, at::zeros({20}, at::kDouble)}).to(dtype);
  }
  return {lo, hi};
}

class Functions : public testing::TestWithParam<std::tuple<Function, at::ScalarType>> {};

TEST_P(Functions, StayBetweenTheirLinesAndInTheirImage) {
  const auto [function, dtype] = GetParam();
  const Interval x = intervals(function, dtype);
  const certify::Lines lines = certify::lines(function, x);
  const Interval image = certify::image(function, x);
  const at::Tensor lo = x.lo.to(at::kDouble), hi = x.hi.to(at::kDouble);
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  double worst_gap = 0;
  for (int i = 0; i <= 1000; ++i) {
    const at::Tensor point = at::minimum(lo + (hi - lo) * (i / 1000.0), hi);
    const at::Tensor y = certify::value(function, point);
    const at::Tensor below = wide(lines.lower_slope) * point + wide(lines.lower_offset);
    const at::Tensor above = wide(lines.upper_slope) * point + wide(lines.upper_offset);
    // The comparison itself is in float64.
    const at::Tensor slack = (y.abs() + above.abs() + below.abs()) * 1e-14;
    ASSERT_TRUE((below <= y + slack).all().item<bool>()) << i;
    ASSERT_TRUE((above >= y - slack).all().item<bool>()) << i;
    ASSERT_TRUE((wide(image.lo) <= y + slack).all().item<bool>()) << i;
    ASSERT_TRUE((wide(image.hi) >= y - slack).all().item<bool>()) << i;
    worst_gap = std::max(worst_gap, (above - below).narrow(0, 400, 20).max().item<double>());
  }
  // Without a perturbation, the lines meet in the value. Values of reciprocal are up to 1e3 here.
  EXPECT_LT(worst_gap, dtype == at::kDouble ? 1e-9 : 1e-1);
}

INSTANTIATE_TEST_SUITE_P(All, Functions,
                         testing::Combine(testing::ValuesIn(kAll),
                                          testing::Values(at::kDouble, at::kFloat)));

TEST(FunctionLines, AreNearTheBestOnesForWideIntervals) {
  const Interval x{at::tensor({-3.0, -4.0, -1.0}, at::kDouble),
                   at::tensor({1.0, 4.0, 2.0}, at::kDouble)};
  for (const Function function : {Function::gelu_erf, Function::tanh}) {
    const certify::Lines lines = certify::lines(function, x);
    for (int64_t i = 0; i < 3; ++i) {
      const double lo = x.lo[i].item<double>(), hi = x.hi[i].item<double>(), mid = (lo + hi) / 2;
      // The best line below, at the middle, is that of the convex hull: by all pairs of points around it.
      double best_lower = 1e300, best_upper = -1e300;
      std::vector<double> points, values;
      for (int k = 0; k <= 400; ++k) {
        points.push_back(lo + (hi - lo) * k / 400);
        values.push_back(
            certify::value(function, at::scalar_tensor(points.back(), at::kDouble)).item<double>());
      }
      for (size_t a = 0; a <= 200; ++a) {
        for (size_t b = 200; b <= 400; ++b) {
          const double share = a == b ? 0 : (mid - points[a]) / (points[b] - points[a]);
          const double value = values[a] + share * (values[b] - values[a]);
          best_lower = std::min(best_lower, value);
          best_upper = std::max(best_upper, value);
        }
      }
      const auto at_mid = [&](const at::Tensor& slope, const at::Tensor& offset) {
        return slope[i].item<double>() * mid + offset[i].item<double>();
      };
      EXPECT_NEAR(at_mid(lines.lower_slope, lines.lower_offset), best_lower, 0.03);
      EXPECT_NEAR(at_mid(lines.upper_slope, lines.upper_offset), best_upper, 0.03);
    }
  }
}

TEST(FunctionLines, CurvaturesAreBounded) {
  for (const Function function : {Function::gelu_erf, Function::gelu_tanh, Function::tanh}) {
    const at::Tensor x = at::linspace(-9, 9, 180001, at::kDouble);
    const double h = 1e-4;
    const at::Tensor second = (certify::value(function, x + h) - 2 * certify::value(function, x) +
                               certify::value(function, x - h)) /
                              (h * h);
    EXPECT_LE(second.abs().max().item<double>(), certify::curvature_bound(function) + 1e-6);
    EXPECT_GE(second.abs().max().item<double>(), certify::curvature_bound(function) - 0.02);
  }
}

}  // namespace
}  // namespace seqfuse::certify_function_test
