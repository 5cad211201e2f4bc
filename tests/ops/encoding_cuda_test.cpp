#include "ops/kernels/jagged/encoding.h"

#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/oracles/encoding.h"

namespace seqfuse::encoding_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  std::vector<int64_t> lengths, targets;
};

std::vector<Case> cases() {
  std::vector<int64_t> lengths(200), targets(200);
  for (int64_t b = 0; b < 200; ++b) {
    lengths[b] = b * 7 % 23;
    targets[b] = lengths[b] / 3;
  }
  return {{{}, {}}, {{0, 0}, {0, 0}}, {{1}, {1}}, {{1, 0, 1}, {0, 0, 1}}, {lengths, targets}};
}

class EncodingCudaTest : public CudaTestWithParam<std::tuple<int64_t, at::ScalarType>> {};

INSTANTIATE_TEST_SUITE_P(Shapes, EncodingCudaTest,
                         testing::Combine(testing::Values(1, 7, 50, 64, 1023), cuda_types()));

// Against gathering by the oracle's index in PyTorch; with atomics and with sorted terms.
void expect_encoding(const OpOfLeaves& encode, const Tensor& index, int64_t table_rows,
                     double scale, int64_t dim, at::ScalarType type) {
  const std::vector<Tensor> leaves{random({index.numel(), dim}, type).cuda(),
                                   random({table_rows, dim}, type).cuda()};
  const Tensor dy = random({index.numel(), dim}, type).cuda();
  const auto gather = [&](auto& in) {
    return scale * in[0] + in[1].index_select(0, index.to(in[0].device()));
  };
  const auto plain = with_gradients(gather, leaves, dy);
  const auto reference = with_gradients(gather, to64(leaves), to64(dy));
  const double largest_terms = max_abs(with_gradients(gather, to64(leaves), to64(dy).abs())[2]);
  const auto expect_rules = [&](const std::vector<Tensor>& ours) {
    expect_oracle_rule(ours[0], plain[0], reference[0], 2, "y");
    expect_oracle_rule(ours[1], plain[1], reference[1], 5, "dx");
    expect_oracle_rule(ours[2], plain[2], reference[2], 5, "dtable", largest_terms);
  };
  expect_rules(with_gradients(encode, leaves, dy));
  const Deterministic deterministic;
  const auto sorted = with_gradients(encode, leaves, dy);
  expect_rules(sorted);
  expect_equal(with_gradients(encode, leaves, dy), sorted, "run to run");
}

TEST_P(EncodingCudaTest, PositionKeepsTheOracleRule) {
  const auto [dim, type] = GetParam();
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.lengths), targets = at::tensor(c.targets, at::kLong);
    const Tensor gpu_offsets = offsets.cuda(), gpu_targets = targets.cuda();
    for (const int64_t rows : {1, 6, 40}) {
      expect_encoding(
          [&](auto& in) {
            return ops::position_encoding(in[0], in[1], gpu_offsets, gpu_targets, 1.5);
          },
          oracle::position_index(offsets, targets, rows), rows, 1.5, dim, type);
      expect_encoding(
          [&](auto& in) {
            return ops::position_encoding(in[0], in[1], gpu_offsets.to(at::kInt), {}, 2);
          },
          oracle::position_index(offsets, {}, rows), rows, 2, dim, type);
    }
  }
}

TEST_P(EncodingCudaTest, TimeKeepsTheOracleRule) {
  const auto [dim, type] = GetParam();
  for (const Case& c : cases()) {
    const Tensor offsets = offsets_of(c.lengths), gpu_offsets = offsets.cuda();
    // Times may go backwards: the age then counts as 0.
    const Tensor times =
        at::randint(0, 5000, {offsets[-1].item<int64_t>()}, at::kLong) + 1'700'000'000'000;
    const Tensor gpu_times = times.cuda();
    for (const int64_t rows : {1, 20, 64}) {
      expect_encoding(
          [&](auto& in) { return ops::time_encoding(in[0], in[1], gpu_offsets, gpu_times, 2.5); },
          oracle::time_index(offsets, times, 2.5, rows), rows, 1, dim, type);
    }
  }
}

TEST_P(EncodingCudaTest, StridesDoNotMatter) {
  const auto [dim, type] = GetParam();
  const Tensor offsets = offsets_of({4, 0, 9}).cuda();
  const Tensor x = random({13, dim}, type).cuda(), table = random({6, dim}, type).cuda();
  const Tensor expected = ops::position_encoding(x, table, offsets, {}, 3);
  EXPECT_TRUE(at::equal(ops::position_encoding(with_row_gaps(x), transposed(table), offsets, {}, 3),
                        expected));
  EXPECT_TRUE(at::equal(ops::position_encoding(transposed(x), with_row_gaps(table), offsets, {}, 3),
                        expected));
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(EncodingCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [dim, type] = GetParam();
  const Tensor x = random({6, dim}, type).cuda(), table = random({3, dim}, type).cuda();
  const Tensor index = at::tensor({0, 2, 1, 2, 2, 0}, at::kLong).cuda();
  const GuardedMatrix y(6, dim, x.options());
  C10_CUDA_CHECK(ops::encoding_forward_cuda({.x = x.const_data_ptr(),
                                             .table = table.const_data_ptr(),
                                             .index = index.const_data_ptr<int64_t>(),
                                             .y = y.data(),
                                             .tokens = 6,
                                             .dim = dim,
                                             .x_stride = dim,
                                             .table_stride = dim,
                                             .y_stride = y.stride(),
                                             .scale = 1},
                                            kernel_dtype(type), c10::cuda::getCurrentCUDAStream()));
  y.check("y");
}
#endif

TEST_P(EncodingCudaTest, ExtremeTimesStayInTheTable) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min(),
                    kHigh = std::numeric_limits<int64_t>::max();
  const Tensor table = at::arange(4, at::kFloat).view({4, 1}).cuda();
  const Tensor times = at::tensor({kLow, kHigh, kHigh}, at::kLong).cuda();
  const Tensor y = ops::time_encoding(at::zeros({3, 1}, table.options()), table,
                                      offsets_of({3}).cuda(), times, 1);
  EXPECT_TRUE(at::equal(y.flatten().cpu(), at::tensor({3.F, 0.F, 0.F})));
}

TEST_P(EncodingCudaTest, ArgumentsElsewhereAreNamed) {
  const Tensor x = at::zeros({4, 2}).cuda(), table = at::zeros({3, 2}).cuda();
  const Tensor offsets = offsets_of({1, 3}), times = at::zeros({4}, at::kLong);
  expect_error([&] { ops::position_encoding(x, table, offsets, {}, 1); },
               "position_encoding: offsets is on cpu; expected cuda:0");
  expect_error([&] { ops::position_encoding(x, table, offsets.cuda(), times.slice(0, 2), 1); },
               "position_encoding: num_targets is on cpu; expected cuda:0");
  expect_error([&] { ops::time_encoding(x, table, offsets.cuda(), times, 1); },
               "time_encoding: timestamps is on cpu; expected cuda:0");
}

}  // namespace
}  // namespace seqfuse::encoding_cuda_test
