#include "ops/kernels/softmax/sample_uniform.h"
#include "ops/torch/ops.h"
#include "tests/ops/cuda_test.h"

namespace seqfuse::sample_uniform_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

class SampleUniformCudaTest : public CudaTest {};

TEST_F(SampleUniformCudaTest, IsTheCpusToTheBit) {
  const Tensor pool = at::randperm(5000, at::kLong).slice(0, 0, 3706);
  for (const auto& [rows, per_row] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 5}, {5, 0}, {1, 1}, {3, 21}, {1, 64}, {5, 13}, {500, 128}}) {
    const Tensor samples = ops::sample_uniform(pool.cuda(), rows, per_row, -9);
    ASSERT_TRUE(samples.is_cuda());
    ASSERT_EQ(samples.scalar_type(), at::kInt);
    EXPECT_TRUE(at::equal(samples.cpu(), ops::sample_uniform(pool, rows, per_row, -9)))
        << rows << " x " << per_row;
  }
  const Tensor strided = at::stack({pool, pool}, 1).select(1, 0);
  EXPECT_TRUE(at::equal(ops::sample_uniform(strided.cuda(), 3, 50, 2),
                        ops::sample_uniform(pool.cuda(), 3, 50, 2)));
}

#ifdef SEQFUSE_HAS_CUDA
TEST_F(SampleUniformCudaTest, WritesItsOutputAndNothingElse) {
  const Tensor pool = at::arange(10, at::kLong).cuda();
  for (const int64_t count : {1, 64, 1000}) {
    const Tensor memory = at::full({count + 2}, -1, pool.options().dtype(at::kInt));
    C10_CUDA_CHECK(ops::sample_uniform_cuda({.pool = pool.const_data_ptr<int64_t>(),
                                             .samples = memory.mutable_data_ptr<int32_t>() + 1,
                                             .size = 10,
                                             .count = count,
                                             .seed = 1},
                                            c10::cuda::getCurrentCUDAStream()));
    EXPECT_GE(memory.slice(0, 1, 1 + count).min().item<int>(), 0) << "samples were not written";
    EXPECT_EQ(memory[0].item<int>(), -1) << "memory before the samples was written";
    EXPECT_EQ(memory[count + 1].item<int>(), -1) << "memory behind the samples was written";
  }
}
#endif

}  // namespace
}  // namespace seqfuse::sample_uniform_cuda_test
