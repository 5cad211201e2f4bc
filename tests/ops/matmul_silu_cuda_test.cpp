// The product with SiLU against float64, compared with PyTorch's in the same dtype. Run again with
// SEQFUSE_FORCE_SM80=1 to cover both kernels on SM 9.0.
#include "ops/torch/gemm/matmul.h"
#include "tests/ops/cuda_test.h"

namespace seqfuse::matmul_silu_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

struct Case {
  int64_t m, k, n;
};

class MatmulSiluCudaTest : public CudaTestWithParam<std::tuple<Case, at::ScalarType>> {};

// Around tiles of 128 x 128 and slices of 32 and 64; several tiles per SM; at the end sizes that
// are not multiples of 8.
INSTANTIATE_TEST_SUITE_P(
    Shapes, MatmulSiluCudaTest,
    testing::Combine(testing::Values(Case{0, 64, 64}, Case{1, 8, 8}, Case{5, 40, 24},
                                     Case{127, 32, 128}, Case{129, 64, 136}, Case{128, 96, 256},
                                     Case{257, 72, 120}, Case{301, 1024, 512},
                                     Case{9001, 256, 1024}, Case{1, 1024, 4096}, Case{37, 50, 200},
                                     Case{3, 7, 5}),
                     testing::Values(at::kHalf, at::kBFloat16)));

// Surrounds the values with NaN, keeping the alignment of their rows.
class InNaN {
 public:
  explicit InNaN(const Tensor& values)
      : memory_(
            at::full({values.size(0) + 2, values.size(1) + 16}, std::nan(""), values.options())),
        matrix_(memory_.slice(0, 1, 1 + values.size(0)).slice(1, 8, 8 + values.size(1))) {
    matrix_.copy_(values);
  }
  const Tensor& matrix() const { return matrix_; }
  bool is_intact() const {
    Tensor around = memory_.clone();
    around.slice(0, 1, 1 + matrix_.size(0)).slice(1, 8, 8 + matrix_.size(1)).fill_(std::nan(""));
    return around.isnan().all().item<bool>();
  }

 private:
  Tensor memory_, matrix_;
};

struct Problem {
  Problem(const Case& size, at::ScalarType type, bool with_bias)
      : a((random({size.m, size.k}) * 2).to(type).cuda()),
        b((random({size.k, size.n}) / std::sqrt(size.k)).to(type).cuda()),
        bias(with_bias ? random({size.n}, type).cuda() : Tensor()) {}
  Tensor product(const Tensor& left, const Tensor& right) const {
    return bias.defined() ? at::addmm(bias.to(left.options()), left, right) : at::mm(left, right);
  }
  Tensor a, b, bias;
};

TEST_P(MatmulSiluCudaTest, KeepsTheOracleRule) {
  const auto [size, type] = GetParam();
  for (const bool with_bias : {false, true}) {
    const Problem problem(size, type, with_bias);
    const Tensor plain = problem.product(problem.a, problem.b);
    const Tensor reference = problem.product(to64(problem.a), to64(problem.b));
    const Tensor y = at::empty_like(plain), z = at::empty_like(plain), y_alone = at::empty_like(y);
    ops::matmul_silu_into(y, z, problem.a, problem.b, problem.bias);
    ops::matmul_silu_into(y_alone, Tensor(), problem.a, problem.b, problem.bias);
    const std::string what = with_bias ? " with a bias" : "";
    expect_oracle_rule(z, plain, reference, 2, "z" + what);
    expect_oracle_rule(y, at::silu(plain), at::silu(reference), 2, "y" + what);
    expect_oracle_rule(y, at::silu(z), at::silu(to64(z)), 2, "y of z" + what);
    EXPECT_TRUE(at::equal(y_alone, y)) << "without z" << what;
  }
}

TEST_P(MatmulSiluCudaTest, ReadsAndWritesMatricesAndNothingElse) {
  const auto [size, type] = GetParam();
  const Problem problem(size, type, true);
  const Tensor nothing = at::full({size.m, size.n}, std::nan(""), problem.a.options());
  for (const bool with_z : {false, true}) {
    const InNaN a(problem.a), b(problem.b), bias(problem.bias.unsqueeze(0)), y(nothing), z(nothing);
    ops::matmul_silu_into(y.matrix(), with_z ? z.matrix() : Tensor(), a.matrix(), b.matrix(),
                          bias.matrix()[0]);
    EXPECT_FALSE(y.matrix().isnan().any().item<bool>());
    EXPECT_EQ(z.matrix().isnan().any().item<bool>(), !with_z && z.matrix().numel() > 0);
    EXPECT_TRUE(y.is_intact());
    EXPECT_TRUE(z.is_intact());
    if (size.n % 8 != 0 || size.k % 8 != 0) continue;  // not our kernel: another order of sums
    Tensor expected = at::empty_like(problem.product(problem.a, problem.b));
    ops::matmul_silu_into(expected, Tensor(), problem.a, problem.b, problem.bias);
    EXPECT_TRUE(at::equal(y.matrix(), expected));
  }
}

TEST_P(MatmulSiluCudaTest, TransposedMatricesDoNotMatter) {
  const auto [size, type] = GetParam();
  const Problem problem(size, type, true);
  const Tensor y = at::empty_like(problem.product(problem.a, problem.b)), other = at::empty_like(y);
  ops::matmul_silu_into(y, Tensor(), problem.a, problem.b, problem.bias);
  ops::matmul_silu_into(other, Tensor(), transposed(problem.a), transposed(problem.b),
                        problem.bias);
  expect_close({other}, {y}, "transposed");
}

class MatmulSiluExtremes : public CudaTestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, MatmulSiluExtremes, testing::Values(at::kHalf, at::kBFloat16));

TEST_P(MatmulSiluExtremes, FarFromZeroItIsZeroOrTheValue) {
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(GetParam());
  const Tensor a = at::zeros({130, 8}, options), b = at::zeros({8, 8}, options);
  const Tensor bias =
      at::tensor({-60000., -1000., -100., -20., 0., 20., 1000., 60000.}).to(options);
  const Tensor y = at::empty({130, 8}, options), z = at::empty_like(y);
  ops::matmul_silu_into(y, z, a, b, bias);
  EXPECT_TRUE(at::equal(z, bias.expand({130, 8})));
  EXPECT_TRUE(at::allclose(to64(y), at::silu(to64(z)), 1e-2, 1e-7)) << y[0];
}

}  // namespace
}  // namespace seqfuse::matmul_silu_cuda_test
