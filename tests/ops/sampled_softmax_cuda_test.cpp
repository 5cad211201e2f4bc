#include "ops/kernels/softmax/sampled_softmax.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/softmax_loss_test.h"

namespace seqfuse::sampled_softmax_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using namespace seqfuse::test::sampled;

class SampledSoftmaxCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// No negatives, only collisions, counts around the 8 and 32 negatives that lanes share, many
// duplicates. Widths: 8 lanes per row (up to 64), a warp per row (up to 256, up to 1024), rows read
// twice; dims with wide loads, with pairs, and odd ones.
INSTANTIATE_TEST_SUITE_P(
    Shapes, SampledSoftmaxCudaTest,
    testing::Combine(testing::Values(Case{0, 5, 3, 4}, Case{6, 0, 3, 4}, Case{5, 3, 1, 4},
                                     Case{1, 1, 2, 1}, Case{9, 15, 20, 16}, Case{33, 16, 5, 17},
                                     Case{40, 17, 300, 50}, Case{70, 128, 3953, 50},
                                     Case{37, 33, 200, 64}, Case{30, 31, 90, 7},
                                     Case{21, 64, 1000, 256}, Case{10, 33, 100, 129},
                                     Case{10, 40, 50, 130}, Case{5, 40, 50, 1023},
                                     Case{6, 33, 40, 1024}, Case{3, 9, 20, 1026},
                                     Case{3, 70, 20, 1500}),
                     cuda_types()));

// Our losses are float32 for every dtype.
LossResult run_plain(const Inputs& in) {
  LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
  plain.losses = plain.losses.to(at::kFloat);
  return plain;
}

TEST_P(SampledSoftmaxCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const Inputs in = make_inputs(shape, type), on_gpu = in.cuda();
  const LossResult plain = run_plain(on_gpu);
  const auto expected = reference(in);
  {
    SCOPED_TRACE("gradient of the table by atomics");
    expect_oracle_rule(run_ours(on_gpu), plain, expected);
  }
  SCOPED_TRACE("gradient of the table from sorted terms");
  const Deterministic deterministic;
  const LossResult ours = run_ours(on_gpu), again = run_ours(on_gpu);
  expect_oracle_rule(ours, plain, expected);
  expect_equal({again.losses, again.dhidden, again.dtable},
               {ours.losses, ours.dhidden, ours.dtable}, "run to run");
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(SampledSoftmaxCudaTest, WritesItsOutputsAndNothingElse) {
  const auto [c, type] = GetParam();
  const Inputs in = make_inputs(c, type).cuda();
  const auto options = in.hidden.options().dtype(at::kFloat);
  for (const bool gradients : {true, false}) {
    // Outputs are contiguous: each is one row of a guarded matrix.
    const GuardedMatrix losses(1, c.positions, options);
    const GuardedMatrix coefficients(1, c.positions * (1 + c.negatives), options);
    const GuardedMatrix dhidden(1, c.positions * c.dim, options);
    C10_CUDA_CHECK(ops::sampled_softmax_forward_cuda(
        {.hidden = in.hidden.const_data_ptr(),
         .table = in.table.const_data_ptr(),
         .targets = in.targets.const_data_ptr<int64_t>(),
         .negatives = in.negatives.const_data_ptr<int32_t>(),
         .losses = losses.data(),
         .coefficients = gradients ? coefficients.data() : nullptr,
         .dhidden = gradients ? dhidden.data() : nullptr,
         .positions = c.positions,
         .num_negatives = c.negatives,
         .dim = c.dim,
         .num_rows = c.rows,
         .temperature = kTemperature},
        kernel_dtype(type), c10::cuda::getCurrentCUDAStream()));
    losses.check("losses");
    if (!gradients) continue;
    coefficients.check("coefficients");
    dhidden.check("dhidden");
  }
}
#endif

class SampledSoftmaxCuda : public CudaTest {};

TEST_F(SampledSoftmaxCuda, NothingButCollisionsCostsNothing) {
  Inputs in = make_inputs({3, 20, 4, 5}, at::kFloat);
  in.negatives.copy_(in.targets.unsqueeze(1).expand({3, 20}));
  const LossResult ours = run_ours(in.cuda());
  EXPECT_EQ(max_abs(ours.losses), 0);
  EXPECT_EQ(max_abs(ours.dhidden), 0);
  EXPECT_EQ(max_abs(ours.dtable), 0);
}

TEST_F(SampledSoftmaxCuda, ExtremeLogitsStayFinite) {
  Inputs in = make_inputs({50, 30, 40, 6}, at::kFloat);
  in.hidden *= 1e4;  // logits up to 2e5
  const LossResult ours = run_ours(in.cuda());
  EXPECT_TRUE(at::allclose(to64(ours.losses), reference(in).losses, 1e-5, 1e-1));
  EXPECT_TRUE(ours.dhidden.isfinite().all().item<bool>());
  EXPECT_TRUE(ours.dtable.isfinite().all().item<bool>());
}

TEST_F(SampledSoftmaxCuda, NotANumberIsNotHidden) {
  for (const int64_t dim : {6, 100, 1500}) {
    Inputs in = make_inputs({2, 20, 40, dim}, at::kFloat);
    in.targets.fill_(0);
    in.negatives.fill_(2);
    in.negatives[1][17] = 1;
    in.table[1].fill_(std::numeric_limits<double>::quiet_NaN());
    const Tensor losses = run_ours(in.cuda()).losses;
    EXPECT_FALSE(losses[0].isnan().item<bool>()) << dim << " columns";
    EXPECT_TRUE(losses[1].isnan().item<bool>()) << dim << " columns";
  }
}

TEST_F(SampledSoftmaxCuda, StridedInputsGiveTheSameBits) {
  expect_strides_do_not_matter(make_inputs({13, 7, 30, 50}, at::kFloat).cuda());
}

TEST_F(SampledSoftmaxCuda, OneGradientAloneIsTheSame) {
  const Deterministic deterministic;
  expect_one_gradient_alone_is_the_same(make_inputs({9, 5, 12, 7}, at::kFloat).cuda());
}

TEST_F(SampledSoftmaxCuda, WrongArgumentsAreExplained) {
  const Inputs in = make_inputs({3, 4, 5, 6}, at::kFloat), on_gpu = in.cuda();
  const auto loss = [&](const Inputs& i, bool sparse = false) {
    ops::sampled_softmax_loss(i.hidden, i.table, i.targets, i.negatives, 1, sparse);
  };
  Inputs mixed = on_gpu;
  mixed.negatives = in.negatives;
  expect_error([&] { loss(mixed); }, "sampled_softmax_loss: negatives is on cpu; expected cuda:0");
  mixed = on_gpu;
  mixed.hidden = in.hidden;
  expect_error([&] { loss(mixed); },
               "sampled_softmax_loss: hidden is Float on cpu; expected Float");
  expect_error([&] { loss(on_gpu, true); },
               "sampled_softmax_loss: sparse_table_grad is true on cuda:0; expected false on CUDA");
}

}  // namespace
}  // namespace seqfuse::sampled_softmax_cuda_test
