// Shared by the tests of both softmax losses: inputs, loss and gradients, comparisons.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

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
  losses.backward(in.dlosses.to(losses.dtype()));
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

namespace sampled {

struct Case {
  int64_t positions, negatives, rows, dim;
};

struct Inputs {
  Tensor hidden, table, targets, negatives, dlosses;
  Inputs cuda() const {
    return {hidden.cuda(), table.cuda(), targets.cuda(), negatives.cuda(), dlosses.cuda()};
  }
};

inline Inputs make_inputs(const Case& c, at::ScalarType type) {
  return {unit_rows(c.positions, c.dim, type), unit_rows(c.rows, c.dim, type),
          at::randint(c.rows, {c.positions}, at::kLong),
          at::randint(c.rows, {c.positions, c.negatives}, at::kInt), random({c.positions}, type)};
}

inline LossResult run_ours(const Inputs& in, bool sparse = false) {
  return run(in, [&](auto& hidden, auto& table) {
    return ops::sampled_softmax_loss(hidden, table, in.targets, in.negatives, kTemperature, sparse);
  });
}

inline void expect_strides_do_not_matter(const Inputs& in) {
  const auto loss = [&](const Tensor& hidden, const Tensor& table, const Tensor& negatives) {
    return ops::sampled_softmax_loss(hidden, table, in.targets, negatives, kTemperature);
  };
  const Tensor expected = loss(in.hidden, in.table, in.negatives);
  EXPECT_TRUE(at::equal(loss(transposed(in.hidden), in.table, in.negatives), expected));
  EXPECT_TRUE(at::equal(loss(with_row_gaps(in.hidden), in.table, in.negatives), expected));
  EXPECT_TRUE(at::equal(loss(in.hidden, transposed(in.table), in.negatives), expected));
  EXPECT_TRUE(at::equal(loss(in.hidden, in.table, transposed(in.negatives)), expected));
}

inline void expect_one_gradient_alone_is_the_same(const Inputs& in) {
  const LossResult both = run_ours(in);
  const auto loss = [&](const Tensor& hidden, const Tensor& table) {
    return ops::sampled_softmax_loss(hidden, table, in.targets, in.negatives, kTemperature);
  };
  const Tensor hidden = in.hidden.clone().requires_grad_();
  loss(hidden, in.table).backward(in.dlosses);
  EXPECT_TRUE(at::equal(hidden.grad(), both.dhidden));
  const Tensor table = in.table.clone().requires_grad_();
  loss(in.hidden, table).backward(in.dlosses);
  EXPECT_TRUE(at::equal(table.grad(), both.dtable));
  EXPECT_TRUE(at::equal(loss(in.hidden, in.table), both.losses));
}

inline Tensor plain_loss(const Inputs& in, const Tensor& hidden, const Tensor& table) {
  const Tensor ids = at::cat({in.targets.unsqueeze(1), in.negatives.to(at::kLong)}, 1);
  const Tensor rows = at::embedding(table, ids);
  const Tensor logits = at::einsum("td,tkd->tk", {hidden, rows}) / kTemperature;
  Tensor collision = ids == in.targets.unsqueeze(1);
  collision.select(1, 0).fill_(false);
  return -at::log_softmax(logits.masked_fill(collision, -5e4), 1).select(1, 0);
}

// In float64.
inline oracle::SoftmaxLoss reference(const Inputs& in) {
  return oracle::sampled_softmax(in.hidden.to(at::kDouble), in.table.to(at::kDouble), in.targets,
                                 in.negatives, kTemperature, in.dlosses.to(at::kDouble));
}

}  // namespace sampled

namespace full {

struct Case {
  int64_t positions, catalogue, rows, dim;
};

struct Inputs {
  Tensor hidden, table, targets, catalogue, dlosses;
  Tensor seen = {}, offsets = {};  // undefined: no row is left out
  Inputs cuda() const {
    Inputs result{hidden.cuda(), table.cuda(), targets.cuda(), catalogue.cuda(), dlosses.cuda()};
    if (seen.defined()) {
      result.seen = seen.cuda();
      result.offsets = offsets.cuda();
    }
    return result;
  }
};

// The catalogue is a random choice of the table's rows, in random order.
inline Inputs make_inputs(const Case& c, at::ScalarType type) {
  const Tensor catalogue = at::randperm(c.rows, at::kLong).slice(0, 0, c.catalogue);
  const Tensor places = at::randint(c.catalogue, {c.positions}, at::kLong);
  return {unit_rows(c.positions, c.dim, type), unit_rows(c.rows, c.dim, type),
          catalogue.index_select(0, places), catalogue, random({c.positions}, type)};
}

// Sequences of 0 to 7 positions with seen rows of the table, including targets, repeated ids and
// ids missing from the catalogue.
inline Inputs with_seen(Inputs in) {
  std::vector<int64_t> offsets{0};
  while (offsets.back() < in.targets.numel()) {
    const auto length = static_cast<int64_t>(offsets.size() * 5 % 8);
    offsets.push_back(std::min(offsets.back() + length, in.targets.numel()));
  }
  in.offsets = at::tensor(offsets, at::kLong);
  in.seen = at::randint(in.table.size(0), {in.targets.numel()}, at::kLong);
  return in;
}

inline LossResult run_ours(const Inputs& in) {
  return run(in, [&](auto& hidden, auto& table) {
    if (!in.seen.defined()) {
      return ops::full_softmax_loss(hidden, table, in.targets, in.catalogue, kTemperature);
    }
    return ops::full_softmax_loss(hidden, table, in.targets, in.catalogue, kTemperature, in.seen,
                                  in.offsets);
  });
}

inline Tensor plain_loss(const Inputs& in, const Tensor& hidden, const Tensor& table) {
  Tensor logits = hidden.mm(table.index_select(0, in.catalogue).t()) / kTemperature;
  const Tensor is_target = in.catalogue.unsqueeze(0) == in.targets.unsqueeze(1);
  if (in.seen.defined()) {
    const Tensor position = at::arange(in.targets.numel(), in.targets.options());
    const Tensor sequence = at::bucketize(position, in.offsets, false, /*right=*/true);
    const Tensor before = sequence.unsqueeze(0).eq(sequence.unsqueeze(1)) &
                          position.unsqueeze(0).le(position.unsqueeze(1));
    const Tensor shown = in.seen.unsqueeze(1).eq(in.catalogue.unsqueeze(0));  // [T, C]
    const Tensor left_out = before.to(at::kFloat).mm(shown.to(at::kFloat)) > 0;
    logits = logits.masked_fill(left_out & is_target.logical_not(),
                                -std::numeric_limits<double>::infinity());
  }
  return -at::log_softmax(logits, 1).masked_select(is_target);
}

// In float64.
inline oracle::SoftmaxLoss reference(const Inputs& in) {
  return oracle::full_softmax(in.hidden.to(at::kDouble), in.table.to(at::kDouble), in.targets,
                              in.catalogue, kTemperature, in.dlosses.to(at::kDouble), in.seen,
                              in.offsets);
}

}  // namespace full
}  // namespace seqfuse::test
