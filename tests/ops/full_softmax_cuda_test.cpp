#include "ops/kernels/softmax/full_softmax.h"

#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/softmax_loss_test.h"

namespace seqfuse::full_softmax_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;
using namespace seqfuse::test::full;

class FullSoftmaxCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// A catalogue of one, of all rows and of some; fewer and more columns than a block's 512.
INSTANTIATE_TEST_SUITE_P(
    Shapes, FullSoftmaxCudaTest,
    testing::Combine(testing::Values(Case{0, 5, 7, 4}, Case{5, 1, 3, 4}, Case{1, 2, 2, 1},
                                     Case{9, 20, 20, 16}, Case{40, 300, 500, 50},
                                     Case{30, 1000, 1001, 33}, Case{7, 1025, 1500, 64}),
                     cuda_types()));

TEST_P(FullSoftmaxCudaTest, KeepsTheOracleRule) {
  const auto [shape, type] = GetParam();
  const Inputs in = make_inputs(shape, type), on_gpu = in.cuda();
  LossResult plain = run(on_gpu, [&](auto& h, auto& t) { return plain_loss(on_gpu, h, t); });
  plain.losses = plain.losses.to(at::kFloat);  // ours are float32 for every dtype
  const LossResult ours = run_ours(on_gpu), again = run_ours(on_gpu);
  expect_oracle_rule(ours, plain, reference(in));
  expect_equal({again.losses, again.dhidden, again.dtable},
               {ours.losses, ours.dhidden, ours.dtable}, "run to run");
}

TEST_P(FullSoftmaxCudaTest, LeavesOutSeenItems) {
  const auto [shape, type] = GetParam();
  const Inputs in = with_seen(make_inputs(shape, type)), on_gpu = in.cuda();
  LossResult plain = run(on_gpu, [&](auto& h, auto& t) { return plain_loss(on_gpu, h, t); });
  plain.losses = plain.losses.to(at::kFloat);
  expect_oracle_rule(run_ours(on_gpu), plain, reference(in));
}

class FullSoftmaxCuda : public CudaTest {};

TEST_F(FullSoftmaxCuda, BlocksGiveTheLossesOfTheWhole) {
  // Two blocks: 64 Mi elements are 1677 positions.
  const Inputs in = make_inputs({1800, 40000, 40000, 8}, at::kFloat).cuda();
  const LossResult ours = run_ours(in);
  const LossResult plain = run(in, [&](auto& h, auto& t) { return plain_loss(in, h, t); });
  expect_close({ours.losses, ours.dhidden, ours.dtable},
               {plain.losses, plain.dhidden, plain.dtable}, "blocks");
}

TEST_F(FullSoftmaxCuda, ExtremeLogitsStayFinite) {
  Inputs in = make_inputs({50, 40, 40, 6}, at::kFloat);
  in.hidden *= 1e4;
  const LossResult ours = run_ours(in.cuda());
  EXPECT_TRUE(at::allclose(to64(ours.losses), reference(in).losses, 1e-5, 1e-1));
  EXPECT_TRUE(ours.dhidden.isfinite().all().item<bool>());
  EXPECT_TRUE(ours.dtable.isfinite().all().item<bool>());
}

TEST_F(FullSoftmaxCuda, StridedInputsGiveTheSame) {
  const Inputs in = make_inputs({13, 20, 30, 50}, at::kFloat).cuda();
  expect_close(
      {ops::full_softmax_loss(transposed(in.hidden), with_row_gaps(in.table), in.targets,
                              in.catalogue, kTemperature)},
      {ops::full_softmax_loss(in.hidden, in.table, in.targets, in.catalogue, kTemperature)},
      "strided");
}

#ifdef SEQFUSE_HAS_CUDA
TEST_F(FullSoftmaxCuda, WritesItsOutputsAndNothingElse) {
  for (const int64_t columns : {1, 7, 513, 3000}) {
    const GuardedMatrix products(1, 6 * columns, at::TensorOptions().device(at::kCUDA)),
        losses(1, 6, products.matrix().options());
    products.matrix().copy_(at::randn({1, 6 * columns}));
    const Tensor targets = at::arange(6, at::kLong).remainder(columns).cuda();
    const Tensor weights = at::ones({6}, products.matrix().options());
    C10_CUDA_CHECK(ops::full_softmax_cuda({.products = products.data(),
                                           .targets = targets.const_data_ptr<int64_t>(),
                                           .losses = losses.data(),
                                           .weights = weights.const_data_ptr(),
                                           .rows = 6,
                                           .columns = columns,
                                           .temperature = .5},
                                          DType::f32, c10::cuda::getCurrentCUDAStream()));
    products.check("products");
    losses.check("losses");
    // The derivative of each row's loss sums to 0.
    EXPECT_LE(max_abs(products.matrix().view({6, columns}).sum(1)), 1e-5) << columns << " columns";
  }
}
#endif

TEST_F(FullSoftmaxCuda, ArgumentsElsewhereAreNamed) {
  Inputs in = make_inputs({3, 4, 5, 6}, at::kFloat).cuda();
  in.catalogue = in.catalogue.cpu();
  expect_error([&] { run_ours(in); }, "full_softmax_loss: catalogue is on cpu; expected cuda:0");
}

}  // namespace
}  // namespace seqfuse::full_softmax_cuda_test
