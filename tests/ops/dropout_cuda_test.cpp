#include "ops/kernels/step/dropout.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"

namespace seqfuse::dropout_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

class DropoutCudaTest : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, DropoutCudaTest, cuda_types());

// Around the 4 elements of a thread, the 64 of a block of words, the 128 of a warp, the 1024 of a
// thread block.
const std::vector<int64_t> kCounts{0, 1, 3, 4, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 100003};

TEST_P(DropoutCudaTest, IsTheCpusToTheBit) {
  for (const int64_t count : kCounts) {
    for (const double p : {.1, .5, .97}) {
      const Tensor x = random({count}, GetParam());
      const Tensor factors = ops::dropout(at::ones({count}), p, 9);
      const Tensor expected = (x.to(at::kFloat) * factors).to(GetParam());
      const auto results =
          with_gradients([&](auto& in) { return ops::dropout(in[0], p, 9); }, {x.cuda()}, x.cuda());
      EXPECT_TRUE(at::equal(results[0].cpu(), expected)) << count << " elements, p " << p;
      EXPECT_TRUE(at::equal(results[1].cpu(), expected)) << count << " elements, p " << p << ", dx";
    }
  }
}

TEST_P(DropoutCudaTest, StridesAndMisalignmentDoNotChangeTheMask) {
  const Tensor x = random({70, 33}, GetParam()).cuda();
  const Tensor expected = ops::dropout(x, .2, 5);
  EXPECT_TRUE(at::equal(ops::dropout(with_row_gaps(x), .2, 5), expected));
  EXPECT_TRUE(at::equal(ops::dropout(transposed(x), .2, 5), expected));
  const Tensor shifted = at::cat({x.flatten(), x.flatten()}).slice(0, 1, 1 + x.numel());
  EXPECT_TRUE(at::equal(ops::dropout(shifted.copy_(x.flatten()), .2, 5), expected.flatten()));
}

#ifdef SEQFUSE_HAS_CUDA
TEST_P(DropoutCudaTest, WritesItsOutputAndNothingElse) {
  for (const int64_t count : kCounts) {
    const Tensor x = random({count}, GetParam()).cuda();
    const GuardedMatrix y(1, count, x.options());
    C10_CUDA_CHECK(ops::dropout_forward_cuda(
        {.x = x.const_data_ptr(), .y = y.data(), .count = count, .p = .2, .seed = 3},
        kernel_dtype(GetParam()), c10::cuda::getCurrentCUDAStream()));
    y.check(std::to_string(count) + " elements");
  }
}
#endif

TEST_P(DropoutCudaTest, OtherDtypesAreRefused) {
  const Tensor x = at::zeros({2, 3}, at::TensorOptions().device(at::kCUDA).dtype(at::kDouble));
  expect_error([&] { ops::dropout(x, .1, 1); },
               "dropout: x is Double on cuda:0; expected Float, Half or BFloat16 on CUDA");
}

}  // namespace
}  // namespace seqfuse::dropout_cuda_test
