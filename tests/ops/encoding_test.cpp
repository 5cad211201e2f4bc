#include "ops/kernels/jagged/encoding.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/encoding.h"

namespace seqfuse::encoding_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  std::vector<int64_t> lengths, targets;
};

std::vector<Case> cases() {
  return {{{}, {}},
          {{0, 0}, {0, 0}},
          {{1}, {1}},
          {{1, 0, 1}, {0, 0, 1}},
          {{9, 0, 4, 1, 13}, {2, 0, 4, 0, 3}}};
}

// Forward and gradients against gathering by the oracle's index in PyTorch.
void expect_encoding(const std::function<Tensor(const Tensor&, const Tensor&)>& encode,
                     const Tensor& index, int64_t table_rows, double scale) {
  const Tensor x = random({index.numel(), 5}, at::kFloat),
               dy = random({index.numel(), 5}, at::kFloat);
  const Tensor table = random({table_rows, 5}, at::kFloat);
  const auto run = [&](at::ScalarType type, auto&& f) {
    const Tensor a = x.to(type).detach().clone().requires_grad_();
    const Tensor b = table.to(type).detach().clone().requires_grad_();
    const Tensor y = f(a, b);
    y.backward(dy.to(type));
    return std::vector<Tensor>{y, a.grad(), b.grad()};
  };
  const auto gather = [&](const Tensor& a, const Tensor& b) {
    return scale * a + b.index_select(0, index);
  };
  const auto ours = run(at::kFloat, encode), plain = run(at::kFloat, gather),
             reference = run(at::kDouble, gather);
  expect_oracle_rule(ours[0], plain[0], reference[0], 2, "y");
  expect_oracle_rule(ours[1], plain[1], reference[1], 5, "dx");
  expect_oracle_rule(ours[2], plain[2], reference[2], 5, "dtable");
}

TEST(PositionEncoding, KeepsTheOracleRule) {
  at::manual_seed(1);
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.lengths), targets = at::tensor(c.targets, at::kLong);
    for (const int64_t rows : {1, 6, 40}) {
      expect_encoding(
          [&](const Tensor& x, const Tensor& table) {
            return ops::position_encoding(x, table, offsets, targets, 1.5);
          },
          oracle::position_index(offsets, targets, rows), rows, 1.5);
      expect_encoding(
          [&](const Tensor& x, const Tensor& table) {
            return ops::position_encoding(x, table, offsets, {}, 2);
          },
          oracle::position_index(offsets, {}, rows), rows, 2);
    }
  }
}

TEST(PositionEncoding, TargetsShareThePositionAfterTheHistory) {
  const Tensor table = at::arange(10, at::kDouble).view({10, 1}),
               x = at::zeros({8, 1}, at::kDouble);
  const Tensor y =
      ops::position_encoding(x, table, offsets_of({5, 3}), at::tensor({2, 0}, at::kLong), 1);
  EXPECT_TRUE(at::equal(y.flatten(), at::tensor({0., 1., 2., 3., 3., 0., 1., 2.}, at::kDouble)));
}

TEST(TimeEncoding, KeepsTheOracleRule) {
  at::manual_seed(2);
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.lengths);
    // Times may go backwards: the age then counts as 0.
    const Tensor times =
        at::randint(0, 5000, {offsets[-1].item<int64_t>()}, at::kLong) + 1'700'000'000'000;
    for (const int64_t rows : {1, 20, 64}) {
      expect_encoding(
          [&](const Tensor& x, const Tensor& table) {
            return ops::time_encoding(x, table, offsets, times, 2.5);
          },
          oracle::time_index(offsets, times, 2.5, rows), rows, 1);
    }
  }
}

TEST(TimeEncoding, ExtremeTimesStayInTheTable) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min(),
                    kHigh = std::numeric_limits<int64_t>::max();
  const Tensor table = at::arange(4, at::kDouble).view({4, 1}), x = at::zeros({3, 1}, at::kDouble);
  const Tensor y =
      ops::time_encoding(x, table, offsets_of({3}), at::tensor({kLow, kHigh, kHigh}, at::kLong), 1);
  EXPECT_TRUE(at::equal(y.flatten(), at::tensor({3., 0., 0.}, at::kDouble)));
}

TEST(Encoding, GradientsMatchCentralDifferences) {
  at::manual_seed(3);
  const Tensor offsets = offsets_of({4, 0, 1, 3}), targets = at::tensor({2, 0, 1, 0}, at::kLong);
  const Tensor times = at::tensor({1, 5, 9, 30, 2, 7, 7, 8}, at::kLong);
  const std::vector<Tensor> inputs{random({8, 3}), random({5, 3})};
  expect_gradients(
      [&](auto& in) { return ops::position_encoding(in[0], in[1], offsets, targets, 1.7); },
      inputs);
  expect_gradients([&](auto& in) { return ops::time_encoding(in[0], in[1], offsets, times, 2.0); },
                   inputs);
}

TEST(Encoding, StridedInputsGiveTheSameBits) {
  at::manual_seed(4);
  const Tensor offsets = offsets_of({4, 0, 9}), x = random({13, 7}), table = random({6, 7});
  const Tensor expected = ops::position_encoding(x, table, offsets, {}, 3);
  EXPECT_TRUE(at::equal(ops::position_encoding(with_row_gaps(x), transposed(table), offsets, {}, 3),
                        expected));
  EXPECT_TRUE(at::equal(
      ops::position_encoding(transposed(x), with_row_gaps(table), offsets.to(at::kInt), {}, 3),
      expected));
}

TEST(Encoding, WritesItsOutputsAndNothingElse) {
  at::manual_seed(5);
  const Tensor x = random({6, 5}), table = random({3, 5}),
               index = at::tensor({0, 2, 1, 2, 2, 0}, at::kLong);
  const GuardedMatrix y(6, 5, x.options());
  ops::encoding_forward_cpu({.x = x.const_data_ptr(),
                             .table = table.const_data_ptr(),
                             .index = index.const_data_ptr<int64_t>(),
                             .y = y.data(),
                             .tokens = 6,
                             .dim = 5,
                             .x_stride = 5,
                             .table_stride = 5,
                             .y_stride = y.stride(),
                             .scale = 1},
                            DType::f64);
  y.check("y");
  const GuardedMatrix dx(1, 30, x.options()), dtable(1, 15, x.options());  // contiguous
  ops::encoding_backward_cpu({.dy = x.const_data_ptr(),
                              .index = index.const_data_ptr<int64_t>(),
                              .dx = dx.data(),
                              .dtable = dtable.data(),
                              .tokens = 6,
                              .dim = 5,
                              .table_rows = 3,
                              .scale = 1},
                             DType::f64);
  dx.check("dx");
  dtable.check("dtable");
}

TEST(Encoding, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(6);
  const Tensor offsets = ops::lengths_to_offsets(at::randint(0, 200, {41}, at::kLong));
  const int64_t tokens = offsets[-1].item<int64_t>();
  const Tensor x = random({tokens, 50}, at::kFloat), table = random({150, 50}, at::kFloat);
  expect_same_for_any_threads([&] {
    const Tensor a = x.detach().requires_grad_(), b = table.detach().requires_grad_();
    const Tensor y = ops::position_encoding(a, b, offsets, {}, 7);
    const auto d = torch::autograd::grad({y}, {a, b}, {x});
    return std::vector<Tensor>{y, d[0], d[1]};
  });
}

TEST(Encoding, WrongArgumentsAreExplained) {
  const Tensor x = random({4, 2}), table = random({3, 2}), offsets = offsets_of({1, 3});
  const Tensor times = at::zeros({4}, at::kLong);
  expect_error([&] { ops::position_encoding(x, random({3, 5}), offsets, {}, 1); },
               "position_encoding: table is [3, 5]; expected [3, 2] (the columns of x)");
  expect_error([&] { ops::position_encoding(x, random({0, 2}), offsets, {}, 1); },
               "position_encoding: table is [0, 2]; expected at least one row and column");
  expect_error([&] { ops::position_encoding(x, table.to(at::kFloat), offsets, {}, 1); },
               "position_encoding: table is Float on cpu; expected Double on cpu, like x");
  expect_error([&] { ops::position_encoding(x, table, offsets_of({1, 2}), {}, 1); },
               "position_encoding: offsets ends with 3 but x has 4 rows");
  expect_error([&] { ops::position_encoding(x, table, offsets, at::tensor({2, 0}, at::kLong), 1); },
               "position_encoding: num_targets of sequence 0 is 2; expected 0 to its length 1");
  expect_error([&] { ops::position_encoding(x, table, offsets, at::tensor({1}, at::kLong), 1); },
               "position_encoding: num_targets is [1]; expected [2]");
  expect_error([&] { ops::time_encoding(x, table, offsets, times.slice(0, 1), 1); },
               "time_encoding: timestamps is [3]; expected [4] (the rows of x)");
  expect_error([&] { ops::time_encoding(x, table, offsets, times.to(at::kInt), 1); },
               "time_encoding: timestamps is Int; expected Long (int64)");
  expect_error([&] { ops::time_encoding(x, table, offsets, times, 0); },
               "time_encoding: unit is 0; expected a positive number");
}

}  // namespace
}  // namespace seqfuse::encoding_test
