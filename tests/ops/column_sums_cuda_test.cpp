#include "ops/torch/norm/column_sums.h"

#include "tests/ops/cuda_test.h"

#ifdef SEQFUSE_HAS_CUDA
namespace seqfuse::column_sums_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

class ColumnSumsCudaTest : public CudaTest {};

Tensor sums_of(const Tensor& x) {
  const Tensor sums = at::full({x.size(1)}, NAN, x.options().dtype(at::kFloat));
  ops::column_sums_into(sums, x);
  return sums;
}

// Whole numbers, whose sums are exact in any order.
TEST_F(ColumnSumsCudaTest, AreExactForEveryShape) {
  for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    for (const int64_t columns : {1, 7, 8, 50, 256, 264, 4096}) {
      for (const int64_t rows : {0, 1, 31, 32, 1000, 40001}) {
        const Tensor wide = at::randint(-3, 4, {rows, columns + 24}, at::kCUDA).to(type);
        for (const int64_t first : {0, 8, 3}) {  // aligned and not
          const Tensor x = wide.narrow(1, first, columns);
          EXPECT_TRUE(at::equal(sums_of(x), x.sum(0, false, at::kFloat)))
              << type << ": " << rows << " x " << columns << " from column " << first;
        }
      }
    }
  }
}

TEST_F(ColumnSumsCudaTest, AreTheSameBitsAgain) {
  const Tensor x = at::randn({50000, 1000}, at::kCUDA).to(at::kBFloat16);
  const Tensor first = sums_of(x);
  for (int n = 0; n < 10; ++n) EXPECT_TRUE(at::equal(sums_of(x), first));
  EXPECT_TRUE(at::allclose(first, x.sum(0, false, at::kDouble).to(at::kFloat), 1e-5, 1e-3));
}

}  // namespace
}  // namespace seqfuse::column_sums_cuda_test
#endif
