// Shared by the tests of operators: the oracle rule, central differences, guarded outputs,
// threads.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "ops/torch/ops.h"
#include "tests/sanitized.h"

namespace seqfuse::test {

using at::Tensor;

inline Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kDouble) {
  return at::randn(sizes, at::kDouble).to(type);
}

inline Tensor offsets_of(const std::vector<int64_t>& lengths) {
  return ops::lengths_to_offsets(at::tensor(lengths, at::kLong));
}

// The same values with gaps between the rows; the elements of a row stay adjacent.
inline Tensor with_row_gaps(const Tensor& x) {
  auto sizes = x.sizes().vec();
  const int64_t columns = sizes.back();
  sizes.back() += 3;
  const at::Scalar gap = x.is_floating_point() ? at::Scalar(std::nan("")) : at::Scalar(-1);
  Tensor wide = at::full(sizes, gap, x.options());
  Tensor view = wide.slice(-1, 1, 1 + columns);
  view.copy_(x);
  return view;
}

// The same values in column order: the elements of a row are not adjacent.
inline Tensor transposed(const Tensor& x) {
  return x.transpose(-2, -1).contiguous().transpose(-2, -1);
}

inline double max_abs(const Tensor& x) {
  return x.numel() == 0 ? 0 : x.abs().max().item<double>();
}

// The oracle rule: our error against the float64 reference is at most factor times that of plain,
// the same computation in plain PyTorch in the same dtype. If PyTorch happens to be exact, ours may
// be off by one rounding of the largest element. largest_terms: for float32 sums that may cancel,
// the largest sum of absolute terms; one rounding of it is also allowed, because the order of the
// terms is not fixed.
inline void expect_oracle_rule(const Tensor& ours, const Tensor& plain, const Tensor& reference,
                               double factor, const std::string& what, double largest_terms = 0) {
  ASSERT_EQ(ours.sizes(), reference.sizes()) << what;
  ASSERT_EQ(ours.scalar_type(), plain.scalar_type()) << what;
  const Tensor expected = reference.detach().to(at::kDouble);  // compared on its device
  const double error = max_abs(ours.detach().to(expected.options()) - expected);
  const double allowed = max_abs(plain.detach().to(expected.options()) - expected);
  const double rounding = ours.scalar_type() == at::kDouble  ? 0x1p-52
                          : ours.scalar_type() == at::kFloat ? 0x1p-23
                          : ours.scalar_type() == at::kHalf  ? 0x1p-10
                                                             : 0x1p-7;
  if (kSanitized) factor *= 4;  // sums are not vectorised, so errors of long ones grow
  EXPECT_LE(error, factor * allowed + rounding * max_abs(expected) + 0x1p-23 * largest_terms)
      << what;
}

// Gradients of sum(f(inputs) * c), c random, against central differences; all in float64. inputs:
// leaves; those of a floating dtype that require a gradient are tested, every element of each.
inline void expect_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                             const std::vector<Tensor>& inputs, double step = 1e-5,
                             double tolerance = 1e-7) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.is_floating_point() ? input.detach().clone().requires_grad_() : input);
  }
  const Tensor out = f(leaves);
  const Tensor c = at::randn_like(out);
  (out * c).sum().backward();
  const at::NoGradGuard no_grad;
  for (size_t n = 0; n < leaves.size(); ++n) {
    if (!leaves[n].is_floating_point()) continue;
    ASSERT_TRUE(leaves[n].grad().defined()) << "input " << n << " has no gradient";
    Tensor numeric = at::zeros_like(leaves[n]);
    for (int64_t e = 0; e < leaves[n].numel(); ++e) {
      auto loss_at = [&](double shift) {
        std::vector<Tensor> moved = leaves;
        moved[n] = leaves[n].clone();
        moved[n].view(-1)[e] += shift;
        return (f(moved) * c).sum().item<double>();
      };
      numeric.view(-1)[e] = (loss_at(step) - loss_at(-step)) / (2 * step);
    }
    const double error = max_abs(leaves[n].grad() - numeric);
    EXPECT_LE(error, tolerance * (1 + max_abs(numeric))) << "input " << n << "\n"
                                                         << leaves[n].grad() << numeric;
  }
}

// Checks that f gives the same bits for any number of threads.
inline void expect_same_for_any_threads(const std::function<std::vector<Tensor>()>& f) {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<Tensor> expected = f();
  for (const int threads : {2, 3, 7}) {
    set_num_threads(threads);
    const std::vector<Tensor> actual = f();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i]))
          << "result " << i << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
}

// The output of a kernel: a [rows, dim] matrix with gaps between its rows, inside memory that the
// kernel must not touch. Filled with NaN; check() verifies that exactly the matrix was written.
// before, after: elements of the gaps, which determine the alignment of the rows.
class GuardedMatrix {
 public:
  GuardedMatrix(int64_t rows, int64_t dim, at::TensorOptions options, int64_t before = 2,
                int64_t after = 3)
      : memory_(at::full({rows + 2, before + dim + after}, std::numeric_limits<double>::quiet_NaN(),
                         options)),
        before_(before),
        matrix_(memory_.slice(0, 1, 1 + rows).slice(1, before, before + dim)) {}

  const Tensor& matrix() const { return matrix_; }
  void* data() const { return matrix_.mutable_data_ptr(); }
  int64_t stride() const { return matrix_.stride(0); }

  void check(const std::string& what) const {
    EXPECT_FALSE(matrix_.isnan().any().item<bool>()) << what << ": elements were not written";
    Tensor around = memory_.clone();
    around.slice(0, 1, 1 + matrix_.size(0))
        .slice(1, before_, before_ + matrix_.size(1))
        .fill_(std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(around.isnan().all().item<bool>())
        << what << ": memory around the output was written";
  }

 private:
  Tensor memory_;
  int64_t before_;
  Tensor matrix_;
};

// Checks that f throws a c10::Error whose message contains text.
inline void expect_error(const std::function<void()>& f, const std::string& text) {
  try {
    f();
    FAIL() << "no error; expected \"" << text << '"';
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr(text));
  }
}

}  // namespace seqfuse::test
