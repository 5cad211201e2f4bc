#include "ops/kernels/jagged/jagged.h"

#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/jagged.h"

namespace seqfuse::jagged_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

// Lengths of two parts: no sequence, only empty ones, one-token ones, mixed, many.
struct Case {
  std::vector<int64_t> first, second;
};

std::vector<Case> cases() {
  std::vector<int64_t> many(300), others(300);
  for (int64_t b = 0; b < 300; ++b) {
    many[b] = b * 7 % 13;
    others[b] = b % 3 == 0 ? 0 : b % 5;
  }
  return {{{}, {}},
          {{0, 0}, {0, 0}},
          {{1}, {0}},
          {{1, 1, 1}, {1, 1, 1}},
          {{5, 0, 3, 1, 0}, {0, 4, 2, 0, 0}},
          {many, others}};
}

int64_t total(const Tensor& offsets) {
  return offsets[-1].item<int64_t>();
}

class JaggedCudaTest : public CudaTest {};

// Row sizes for words of 1, 2, 4, 8 and 16 bytes.
struct Rows {
  int64_t dim;
  at::ScalarType type;
};
const std::vector<Rows> kRows{{7, at::kByte}, {7, at::kHalf},  {7, at::kFloat}, {50, at::kFloat},
                              {7, at::kLong}, {64, at::kHalf}, {300, at::kInt}};

Tensor values(int64_t count, const Rows& rows) {
  return at::randint(0, 100, {count, rows.dim}, at::kLong).to(rows.type);
}

TEST_F(JaggedCudaTest, OffsetsAreTheExclusiveSum) {
  for (const auto type : {at::kLong, at::kInt}) {
    const Tensor lengths = at::tensor({3, 0, 2}, type).cuda();
    EXPECT_TRUE(
        at::equal(ops::lengths_to_offsets(lengths), at::tensor({0, 3, 3, 5}, at::kLong).cuda()));
    EXPECT_TRUE(at::equal(ops::lengths_to_offsets(lengths.slice(0, 0, 0)),
                          at::tensor({0}, at::kLong).cuda()));
  }
}

TEST_F(JaggedCudaTest, ConcatAndSplitAreInverse) {
  for (const Case& c : cases()) {
    const std::vector<Tensor> offsets{offsets_of(c.first), offsets_of(c.second)};
    const std::vector<int64_t> part_rows{total(offsets[0]), total(offsets[1])};
    const std::vector<Tensor> on_gpu{offsets[0].cuda(), offsets[1].to(at::kInt).cuda()};
    for (const Rows& rows : kRows) {
      const std::vector<Tensor> parts{values(part_rows[0], rows), values(part_rows[1], rows)};
      const Tensor a = parts[0].cuda(), b = parts[1].cuda();
      const Tensor joined = ops::jagged_concat({a, b}, on_gpu);
      EXPECT_TRUE(at::equal(joined.cpu(), oracle::jagged_concat(parts, offsets)))
          << "concat of " << rows.type << " " << joined.sizes();
      EXPECT_TRUE(at::equal(ops::jagged_concat({with_row_gaps(a), transposed(b)}, on_gpu), joined));
      for (const Tensor& x : {joined, with_row_gaps(joined), transposed(joined)}) {
        const auto split = ops::jagged_split(x, on_gpu, part_rows);
        EXPECT_TRUE(at::equal(split[0], a)) << "split of " << rows.type << " " << joined.sizes();
        EXPECT_TRUE(at::equal(split[1], b)) << "split of " << rows.type << " " << joined.sizes();
      }
    }
  }
}

TEST_F(JaggedCudaTest, DenseConversionPadsAndCuts) {
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.first), on_gpu = offsets.cuda();
    for (const Rows& rows : kRows) {
      const Tensor x = values(total(offsets), rows);
      for (const int64_t max_len : {0, 1, 4, 13}) {
        const Tensor dense = ops::jagged_to_dense(x.cuda(), on_gpu, max_len, 3);
        EXPECT_TRUE(at::equal(dense.cpu(), oracle::jagged_to_dense(x, offsets, max_len, 3)))
            << rows.type << " to " << dense.sizes();
        EXPECT_TRUE(
            at::equal(ops::jagged_to_dense(transposed(x.cuda()), on_gpu, max_len, 3), dense));
      }
      const Tensor dense = ops::jagged_to_dense(x.cuda(), on_gpu, 13, 0);
      for (const Tensor& d : {dense, with_row_gaps(dense), transposed(dense)}) {
        EXPECT_TRUE(at::equal(ops::dense_to_jagged(d, on_gpu, x.size(0)).cpu(), x))
            << rows.type << " from " << dense.sizes();
      }
    }
  }
}

TEST_F(JaggedCudaTest, RepeatGivesEachSequenceItsRow) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const Case& c : cases()) {
      const Tensor offsets = offsets_of(c.first), rows = random({offsets.numel() - 1, 5}, type);
      const int64_t tokens = total(offsets);
      const Tensor expected = oracle::jagged_repeat(rows, offsets);
      for (const Tensor& x : {rows.cuda(), with_row_gaps(rows.cuda()), transposed(rows.cuda())}) {
        EXPECT_TRUE(at::equal(ops::jagged_repeat(x, offsets.cuda(), tokens).cpu(), expected))
            << type << " to " << expected.sizes();
      }
    }
  }
}

TEST_F(JaggedCudaTest, GradientsAreTheCpus) {
  const Tensor first = offsets_of({3, 0, 2, 1}), second = offsets_of({1, 2, 0, 0});
  const std::vector<Tensor> both{first, second};
  const auto on = [](const std::vector<Tensor>& tensors, at::Device device) {
    std::vector<Tensor> moved;
    for (const Tensor& t : tensors) moved.push_back(t.to(device));
    return moved;
  };
  const auto check = [&](const char* what, const OpOfLeaves& f, const std::vector<Tensor>& leaves) {
    const Tensor dy = at::randn_like(f(leaves));
    const auto expected = with_gradients(f, leaves, dy);
    const auto actual = with_gradients(f, on(leaves, at::kCUDA), dy.cuda());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::equal(actual[i].cpu(), expected[i])) << what << ", result " << i;
  };
  const Tensor a = random({6, 3}, at::kFloat), b = random({3, 3}, at::kFloat);
  check("concat", [&](auto& in) { return ops::jagged_concat(in, on(both, in[0].device())); },
        {a, b});
  check("split",
        [&](auto& in) {
          const auto parts = ops::jagged_split(in[0], on(both, in[0].device()), {6, 3});
          return at::cat({parts[0] * 2, parts[1].square()});
        },
        {random({9, 3}, at::kFloat)});
  for (const int64_t max_len : {2, 5}) {  // truncates one
    check(
        "to_dense",
        [&](auto& in) { return ops::jagged_to_dense(in[0], first.to(in[0].device()), max_len, 1); },
        {a});
  }
  check("from_dense",
        [&](auto& in) { return ops::dense_to_jagged(in[0], first.to(in[0].device()), 6); },
        {random({4, 3, 2}, at::kFloat)});
  check("repeat", [&](auto& in) { return ops::jagged_repeat(in[0], first.to(in[0].device()), 6); },
        {random({4, 3}, at::kFloat)});
  check("interleave", [&](auto& in) { return ops::interleave(in[0], in[1]); }, {a, a * 2});
}

TEST_F(JaggedCudaTest, GradientOfRepeatKeepsTheOracleRule) {
  const Tensor offsets = offsets_of({400, 0, 1, 77});
  const Tensor index = at::repeat_interleave(at::tensor({400, 0, 1, 77}, at::kLong)).cuda();
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const Tensor dy = random({478, 5}, type).cuda(), rows = random({4, 5}, type).cuda();
    const auto ours = with_gradients(
        [&](auto& in) { return ops::jagged_repeat(in[0], offsets.cuda(), 478); }, {rows}, dy);
    const auto plain =
        with_gradients([&](auto& in) { return in[0].index_select(0, index); }, {rows}, dy);
    const Tensor expected = at::zeros({4, 5}, at::kDouble).index_add(0, index.cpu(), to64(dy));
    expect_oracle_rule(ours[1], plain[1], expected, 5, "drows");
  }
}

TEST_F(JaggedCudaTest, RowsBehindTheLastSequenceAreZero) {
  const Tensor offsets = offsets_of({2, 1}).cuda();
  const Tensor rows = at::ones({2, 3}, offsets.options().dtype(at::kFloat));
  const Tensor repeated = ops::jagged_repeat(rows, offsets, 5);
  EXPECT_TRUE(at::equal(repeated.sum(1).cpu(), at::tensor({3.F, 3.F, 3.F, 0.F, 0.F})));
  const Tensor dense = at::ones({2, 4, 3}, rows.options());
  EXPECT_TRUE(at::equal(ops::dense_to_jagged(dense, offsets, 5), repeated));
}

#ifdef SEQFUSE_HAS_CUDA
TEST_F(JaggedCudaTest, KernelsWriteTheirOutputsAndNothingElse) {
  const Tensor offsets = offsets_of({3, 0, 6, 1}).cuda();
  const Tensor x = random({10, 7}).cuda(), rows = random({4, 7}).cuda();
  const int64_t* place = offsets.const_data_ptr<int64_t>();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const GuardedMatrix joined(10, 7, x.options()), part(10, 7, x.options());
  C10_CUDA_CHECK(ops::jagged_concat_cuda({.parts = {{x.data_ptr(), place, 7}},
                                          .values = joined.data(),
                                          .batch = 4,
                                          .dim = 7,
                                          .element_size = 8,
                                          .values_stride = joined.stride(),
                                          .total = 10},
                                         stream));
  joined.check("concat");
  C10_CUDA_CHECK(ops::jagged_split_cuda({.parts = {{part.data(), place, part.stride()}},
                                         .values = x.data_ptr(),
                                         .batch = 4,
                                         .dim = 7,
                                         .element_size = 8,
                                         .values_stride = 7,
                                         .total = 10},
                                        stream));
  part.check("split");
  const Tensor fill = at::zeros({7}, x.options());
  const GuardedMatrix dense(4 * 5, 7, x.options()), back(10, 7, x.options());
  ops::JaggedDenseParams params{.values = x.data_ptr(),
                                .offsets = place,
                                .dense = dense.data(),
                                .fill = fill.const_data_ptr(),
                                .batch = 4,
                                .max_len = 5,
                                .dim = 7,
                                .element_size = 8,
                                .values_stride = 7,
                                .dense_batch_stride = 5 * dense.stride(),
                                .dense_stride = dense.stride(),
                                .total = 10};
  C10_CUDA_CHECK(ops::jagged_to_dense_cuda(params, stream));
  dense.check("to_dense");
  params.values = back.data();
  params.values_stride = back.stride();
  C10_CUDA_CHECK(ops::jagged_from_dense_cuda(params, stream));
  back.check("from_dense");
  const GuardedMatrix repeated(10, 7, x.options()), drows(4, 7, x.options());
  C10_CUDA_CHECK(ops::jagged_repeat_forward_cuda({.rows = rows.const_data_ptr(),
                                                  .offsets = place,
                                                  .values = repeated.data(),
                                                  .batch = 4,
                                                  .dim = 7,
                                                  .element_size = 8,
                                                  .rows_stride = 7,
                                                  .values_stride = repeated.stride(),
                                                  .total = 10},
                                                 stream));
  repeated.check("repeat");
  C10_CUDA_CHECK(ops::jagged_repeat_backward_cuda({.dvalues = x.const_data_ptr(),
                                                   .offsets = place,
                                                   .drows = drows.data(),
                                                   .batch = 4,
                                                   .dim = 7,
                                                   .dvalues_stride = 7,
                                                   .drows_stride = drows.stride()},
                                                  DType::f64, stream));
  drows.check("drows");
}
#endif

TEST_F(JaggedCudaTest, WrongArgumentsAreExplained) {
  const Tensor x = random({4, 2}, at::kFloat).cuda(), offsets = offsets_of({1, 3});
  const Tensor on_gpu = offsets.cuda();
  expect_error(
      [&] { ops::jagged_to_dense(x, offsets, 2, 0); },
      "jagged_to_dense: offsets is on cpu; expected cuda:0, where the other arguments are");
  expect_error([&] { ops::jagged_split(x, {on_gpu}); },
               "jagged_split: 0 part_rows for 1 part_offsets; expected one each: on CUDA offsets");
  expect_error([&] { ops::jagged_split(x, {on_gpu}, {3}); },
               "jagged_split: part_offsets end with 3 rows in all but values has 4");
  expect_error([&] { ops::jagged_repeat(x.slice(0, 0, 2), on_gpu); },
               "jagged_repeat: the number of rows of the result was not given; on CUDA pass it");
  expect_error([&] { ops::dense_to_jagged(at::zeros({2, 3, 1}, x.options()), on_gpu); },
               "dense_to_jagged: the number of rows of the result was not given");
  const std::vector<Tensor> nine(9, x), nine_offsets(9, on_gpu);
  expect_error([&] { ops::jagged_concat(nine, nine_offsets); },
               "jagged_concat: 9 parts on cuda:0; expected at most 8 on CUDA");
  expect_error([&] { ops::jagged_concat({x, x.cpu()}, {on_gpu, on_gpu}); },
               "jagged_concat: a part is Float on cpu; expected Float on cuda:0");
}

}  // namespace
}  // namespace seqfuse::jagged_cuda_test
