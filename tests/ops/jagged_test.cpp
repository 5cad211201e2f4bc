#include "ops/kernels/jagged/jagged.h"

#include "ops/torch/ops.h"
#include "tests/ops/op_test.h"
#include "tests/oracles/jagged.h"

namespace seqfuse::jagged_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

// Batches of two parts: no sequence, only empty ones, one-token ones, mixed.
struct Case {
  std::vector<int64_t> first, second;
};

std::vector<Case> cases() {
  return {{{}, {}},
          {{0, 0}, {0, 0}},
          {{1}, {0}},
          {{1, 1, 1}, {1, 1, 1}},
          {{5, 0, 3, 1, 0}, {0, 4, 2, 0, 0}}};
}

int64_t total(const Tensor& offsets) {
  return offsets[-1].item<int64_t>();
}

TEST(Jagged, OffsetsAreTheExclusiveSum) {
  EXPECT_TRUE(at::equal(offsets_of({3, 0, 2}), at::tensor({0, 3, 3, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(offsets_of({}), at::tensor({0}, at::kLong)));
  EXPECT_TRUE(at::equal(ops::lengths_to_offsets(at::tensor({4, 1}, at::kInt)),
                        at::tensor({0, 4, 5}, at::kLong)));
}

TEST(Jagged, ConcatAndSplitAreInverse) {
  at::manual_seed(1);
  for (const Case& c : cases()) {
    const std::vector<Tensor> offsets{offsets_of(c.first), offsets_of(c.second)};
    for (const auto type : {at::kFloat, at::kDouble, at::kLong}) {
      const std::vector<Tensor> parts{(random({total(offsets[0]), 7}) * 100).to(type),
                                      (random({total(offsets[1]), 7}) * 100).to(type)};
      const Tensor joined = ops::jagged_concat(parts, offsets);
      EXPECT_TRUE(at::equal(joined, oracle::jagged_concat(parts, offsets)));
      EXPECT_TRUE(at::equal(ops::jagged_concat({with_row_gaps(parts[0]), transposed(parts[1])},
                                               {offsets[0].to(at::kInt), offsets[1]}),
                            joined));
      for (const Tensor& values : {joined, with_row_gaps(joined), transposed(joined)}) {
        const auto split = ops::jagged_split(values, offsets);
        EXPECT_TRUE(at::equal(split[0], parts[0]));
        EXPECT_TRUE(at::equal(split[1], parts[1]));
      }
    }
  }
}

TEST(Jagged, DenseConversionPadsAndCuts) {
  at::manual_seed(2);
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.first), values = random({total(offsets), 3});
    for (const int64_t max_len : {0, 1, 4, 6}) {
      const Tensor dense = ops::jagged_to_dense(values, offsets, max_len, -2.5);
      EXPECT_TRUE(at::equal(dense, oracle::jagged_to_dense(values, offsets, max_len, -2.5)));
      EXPECT_TRUE(
          at::equal(ops::jagged_to_dense(transposed(values), offsets, max_len, -2.5), dense));
    }
    const Tensor dense = ops::jagged_to_dense(values, offsets, 6, 0);
    EXPECT_TRUE(at::equal(ops::dense_to_jagged(dense, offsets), values));
    EXPECT_TRUE(at::equal(ops::dense_to_jagged(with_row_gaps(dense), offsets), values));
    EXPECT_TRUE(at::equal(ops::dense_to_jagged(transposed(dense), offsets), values));
  }
}

TEST(Jagged, RepeatGivesEachSequenceItsRow) {
  at::manual_seed(3);
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.first), rows = random({offsets.numel() - 1, 5});
    const Tensor expected = oracle::jagged_repeat(rows, offsets);
    EXPECT_TRUE(at::equal(ops::jagged_repeat(rows, offsets), expected));
    EXPECT_TRUE(at::equal(ops::jagged_repeat(with_row_gaps(rows), offsets), expected));
  }
}

TEST(Jagged, InterleaveAlternatesRows) {
  const Tensor a = at::arange(6).view({3, 2}), b = a + 10;
  EXPECT_TRUE(
      at::equal(ops::interleave(a, b),
                at::tensor({0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15}, at::kLong).view({6, 2})));
  EXPECT_EQ(ops::interleave(at::zeros({0, 2}), at::zeros({0, 2})).sizes(), at::IntArrayRef({0, 2}));
}

TEST(Jagged, GradientsMatchCentralDifferences) {
  at::manual_seed(4);
  const Tensor first = offsets_of({3, 0, 2, 1}), second = offsets_of({1, 2, 0, 0});
  const Tensor a = random({6, 3}), b = random({3, 3}), joined = random({9, 3});
  expect_gradients([&](auto& in) { return ops::jagged_concat({in[0], in[1]}, {first, second}); },
                   {a, b});
  expect_gradients(
      [&](auto& in) {
        const auto parts = ops::jagged_split(in[0], {first, second});
        return at::cat({parts[0] * 2, parts[1].square()});
      },
      {joined});
  expect_gradients([&](auto& in) { return ops::jagged_split(in[0], {first, second})[1]; },
                   {joined});
  expect_gradients([&](auto& in) { return ops::jagged_to_dense(in[0], first, 2, 1); },
                   {a});  // truncates one
  expect_gradients([&](auto& in) { return ops::jagged_to_dense(in[0], first, 5, 1); }, {a});
  expect_gradients([&](auto& in) { return ops::dense_to_jagged(in[0], first); },
                   {random({4, 3, 2})});
  expect_gradients([&](auto& in) { return ops::jagged_repeat(in[0], first); }, {random({4, 3})});
  expect_gradients([&](auto& in) { return ops::interleave(in[0], in[1]); }, {a, a * 2});
}

TEST(Jagged, GradientOfRepeatKeepsTheOracleRule) {
  at::manual_seed(5);
  const Tensor offsets = offsets_of({400, 0, 1, 77}),
               index = ops::jagged_repeat(at::arange(4, at::kDouble).view({4, 1}), offsets);
  const Tensor dy = random({478, 5}, at::kFloat), rows = random({4, 5}, at::kFloat);
  const Tensor ours = rows.clone().requires_grad_(), plain = rows.clone().requires_grad_();
  ops::jagged_repeat(ours, offsets).backward(dy);
  plain.index_select(0, index.flatten().to(at::kLong)).backward(dy);
  const Tensor expected = at::zeros({4, 5}, at::kDouble)
                              .index_add(0, index.flatten().to(at::kLong), dy.to(at::kDouble));
  expect_oracle_rule(ours.grad(), plain.grad(), expected, 5, "drows");
}

TEST(Jagged, KernelsWriteTheirOutputsAndNothingElse) {
  at::manual_seed(6);
  const Tensor offsets = offsets_of({3, 0, 6, 1}), values = random({10, 7}), rows = random({4, 7});
  const int64_t* place = offsets.const_data_ptr<int64_t>();
  const GuardedMatrix joined(10, 7, values.options());
  ops::jagged_concat_cpu({.parts = {{values.data_ptr(), place, 7}},
                          .values = joined.data(),
                          .batch = 4,
                          .dim = 7,
                          .element_size = 8,
                          .values_stride = joined.stride()});
  joined.check("concat");
  const GuardedMatrix part(10, 7, values.options());
  ops::jagged_split_cpu({.parts = {{part.data(), place, part.stride()}},
                         .values = values.data_ptr(),
                         .batch = 4,
                         .dim = 7,
                         .element_size = 8,
                         .values_stride = 7});
  part.check("split");
  const Tensor fill = at::zeros({7}, at::kDouble);
  const GuardedMatrix dense(4 * 5, 7, values.options()), back(10, 7, values.options());
  ops::JaggedDenseParams params{.values = values.data_ptr(),
                                .offsets = place,
                                .dense = dense.data(),
                                .fill = fill.const_data_ptr(),
                                .batch = 4,
                                .max_len = 5,
                                .dim = 7,
                                .element_size = 8,
                                .values_stride = 7,
                                .dense_batch_stride = 5 * dense.stride(),
                                .dense_stride = dense.stride()};
  ops::jagged_to_dense_cpu(params);
  dense.check("to_dense");
  params.values = back.data();
  params.values_stride = back.stride();
  ops::jagged_from_dense_cpu(params);
  back.check("from_dense");
  const GuardedMatrix repeated(10, 7, values.options()), drows(4, 7, values.options());
  ops::jagged_repeat_forward_cpu({.rows = rows.const_data_ptr(),
                                  .offsets = place,
                                  .values = repeated.data(),
                                  .batch = 4,
                                  .dim = 7,
                                  .element_size = 8,
                                  .rows_stride = 7,
                                  .values_stride = repeated.stride()});
  repeated.check("repeat");
  ops::jagged_repeat_backward_cpu({.dvalues = values.const_data_ptr(),
                                   .offsets = place,
                                   .drows = drows.data(),
                                   .batch = 4,
                                   .dim = 7,
                                   .dvalues_stride = 7,
                                   .drows_stride = drows.stride()},
                                  DType::f64);
  drows.check("drows");
}

TEST(Jagged, SameBitsForAnyNumberOfThreads) {
  at::manual_seed(7);
  const Tensor offsets = ops::lengths_to_offsets(at::randint(0, 40, {57}, at::kLong));
  const Tensor values = random({total(offsets), 9}, at::kFloat), rows = random({57, 9}, at::kFloat);
  expect_same_for_any_threads([&] {
    const Tensor leaf = rows.detach().requires_grad_();
    const Tensor drows =
        torch::autograd::grad({ops::jagged_repeat(leaf, offsets)}, {leaf}, {values})[0];
    return std::vector<Tensor>{drows, ops::jagged_concat({values, values}, {offsets, offsets}),
                               ops::jagged_to_dense(values, offsets, 30, 0)};
  });
}

TEST(Jagged, WrongArgumentsAreExplained) {
  const Tensor x = random({4, 2});
  const auto offsets = [](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong);
  };
  expect_error([&] { ops::lengths_to_offsets(offsets({1, -2})); },
               "lengths_to_offsets: lengths contains -2; expected no negative length");
  expect_error([&] { ops::lengths_to_offsets(random({3})); },
               "lengths_to_offsets: lengths is Double; expected Long");
  expect_error([&] { ops::jagged_to_dense(x, offsets({1, 4}), 2, 0); },
               "jagged_to_dense: offsets starts with 1; expected 0");
  expect_error([&] { ops::jagged_to_dense(x, offsets({0, 3, 2, 4}), 2, 0); },
               "jagged_to_dense: offsets decreases from 3 to 2 at [2]");
  expect_error([&] { ops::jagged_to_dense(x, offsets({0, 3}), 2, 0); },
               "jagged_to_dense: offsets ends with 3 but values has 4 rows; they must be equal");
  expect_error([&] { ops::jagged_to_dense(x, random({2}), 2, 0); },
               "jagged_to_dense: offsets is Double; expected Long or Int");
  expect_error([&] { ops::jagged_to_dense(x, offsets({0, 4}), -1, 0); },
               "jagged_to_dense: max_len is -1; expected 0 or more");
  expect_error([&] { ops::jagged_concat({x, random({4, 3})}, {offsets({0, 4}), offsets({0, 4})}); },
               "jagged_concat: a part is [4, 3]; expected [4, 2] (the columns of the first part)");
  expect_error([&] { ops::jagged_concat({x, x}, {offsets({0, 4}), offsets({0, 2, 4})}); },
               "all parts must have the same number of sequences");
  expect_error([&] { ops::jagged_concat({x}, {}); }, "jagged_concat: 1 parts and 0 offsets");
  expect_error([&] { ops::jagged_split(x, {offsets({0, 1}), offsets({0, 1})}); },
               "jagged_split: part_offsets end with 2 rows in all but values has 4");
  expect_error([&] { ops::dense_to_jagged(random({2, 3, 1}), offsets({0, 1, 5})); },
               "dense_to_jagged: sequence 1 has 4 rows by its offsets but dense has room for 3");
  expect_error([&] { ops::jagged_repeat(x, offsets({0, 1})); },
               "jagged_repeat: offsets is [2]; expected [5] ([B + 1] for rows [B, D])");
  expect_error([&] { ops::interleave(x, random({3, 2})); },
               "interleave: b is [3, 2]; expected [4, 2]");
}

}  // namespace
}  // namespace seqfuse::jagged_test
