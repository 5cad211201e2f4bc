// What the tests of both softmax losses share: inputs, loss and gradients, comparisons.
#pragma once

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/softmax_loss.h"

namespace seqfuse::test {

constexpr double kTemperature = .05;

// Rows [rows, dim] of norm 1.
inline Tensor unit_rows(int64_t rows, int64_t dim, at::ScalarType type) {
  const Tensor x = random({rows, dim});
  return (x / x.norm(2, {1}, true)).to(type);
}

struct LossResult {
  Tensor losses, dhidden, dtable;
};

// Loss and gradients of f(in.hidden, in.table).
template <class Inputs, class Loss>
LossResult run(const Inputs& in, Loss&& f) {
  const Tensor hidden = in.hidden.detach().clone().requires_grad_();
  const Tensor table = in.table.detach().clone().requires_grad_();
  const Tensor losses = f(hidden, table);
  losses.backward(in.dlosses);
  return {losses.detach(), hidden.grad(), table.grad()};
}

inline void expect_oracle_rule(const LossResult& ours, const LossResult& plain,
                               const oracle::SoftmaxLoss& expected) {
  expect_oracle_rule(ours.losses, plain.losses, expected.losses, 2, "losses");
  expect_oracle_rule(ours.dhidden, plain.dhidden, expected.dhidden, 5, "dhidden");
  expect_oracle_rule(ours.dtable, plain.dtable, expected.dtable, 5, "dtable");
}

inline void expect_near(const LossResult& ours, const oracle::SoftmaxLoss& expected,
                        double tolerance) {
  EXPECT_LE(max_abs(ours.losses - expected.losses), tolerance);
  EXPECT_LE(max_abs(ours.dhidden - expected.dhidden), tolerance);
  EXPECT_LE(max_abs(ours.dtable - expected.dtable), tolerance);
}

}  // namespace seqfuse::test
