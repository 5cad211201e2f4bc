// The tensor-core kernels of attention under a mask, by way of the operator.
#include "tests/ops/cuda_test.h"
#include "tests/ops/masked_attention_problem.h"

namespace seqfuse::masked_attention_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

std::vector<at::TensorOptions> types() {
  return {at::TensorOptions(at::kHalf).device(at::kCUDA),
          at::TensorOptions(at::kBFloat16).device(at::kCUDA)};
}

// Values that 16 bits hold, so that the float64 reference has the same inputs.
MaskedProblem rounded(const Mask& mask, const MaskedSizes& sizes) {
  MaskedProblem problem(mask, sizes);
  for (Tensor* t : {&problem.q, &problem.k, &problem.v, &problem.dout})
    *t = t->to(at::kBFloat16).to(at::kDouble);
  return problem;
}

class MaskedAttentionCudaKinds : public CudaTestWithParam<MaskedKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MaskedAttentionCudaKinds, testing::ValuesIn(kMaskedKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(MaskedAttentionCudaKinds, IsTheFormula) {
  for (const int64_t n : {1, 63, 64, 65, 127, 1000}) {
    for (const int64_t d : {32, 64, 80, 128}) {
      rounded(GetParam().make(n, n), {.batch = 2, .queries = n, .keys = n, .head_dim = d})
          .check("length " + std::to_string(n) + " head_dim " + std::to_string(d), types());
    }
  }
}

TEST_P(MaskedAttentionCudaKinds, LengthsMayDifferAndHeadsMayBeShared) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{5, 200}, {200, 70}}) {
    for (const int64_t d : {8, 40, 104}) {
      rounded(
          GetParam().make(queries, keys),
          {.batch = 2, .heads = 6, .key_heads = 2, .queries = queries, .keys = keys, .head_dim = d})
          .check(std::to_string(queries) + " x " + std::to_string(keys) + " head_dim " +
                     std::to_string(d),
                 types());
    }
  }
}

class MaskedAttentionCuda : public CudaTest {};

TEST_F(MaskedAttentionCuda, EveryRunGivesTheSameBits) {
  const MaskedProblem problem(
      masks::longformer(300, 300, 20, 3),
      {.batch = 2, .heads = 4, .key_heads = 2, .queries = 300, .keys = 300});
  for (const at::TensorOptions& type : types())
    expect_equal(problem.ours(type), problem.ours(type), "again");
}

TEST_F(MaskedAttentionCuda, TakesRowsOfAnyAlignment) {
  const MaskedProblem problem(masks::causal(70, 70), {.heads = 2, .queries = 70, .keys = 70});
  for (const at::TensorOptions& type : types()) {
    auto expected = problem.ours(type);
    expected.resize(2);  // without the gradients
    auto blocks = ops::block_mask_tensors(masks::BlockMask(problem.mask));
    for (Tensor& list : blocks.lists) list = list.cuda();
    const auto there = [&](const Tensor& t) { return with_row_gaps(t.to(type)); };
    const auto [out, lse] = ops::masked_attention(there(problem.q), there(problem.k),
                                                  there(problem.v), blocks, problem.scale);
    expect_equal({out, lse}, expected, "rows with gaps");
  }
}

TEST_F(MaskedAttentionCuda, WrongArgumentsAreExplained) {
  const auto run = [](int64_t d, at::ScalarType type, double scale, bool mask_there = true) {
    auto blocks = ops::block_mask_tensors(masks::BlockMask(masks::full(8, 8)));
    if (mask_there)
      for (Tensor& list : blocks.lists) list = list.cuda();
    const Tensor q = at::zeros({1, 1, 8, d}, at::TensorOptions(type).device(at::kCUDA));
    ops::masked_attention(q, q, q, blocks, scale);
  };
  expect_error([&] { run(36, at::kHalf, 1); },
               "q is [1, 1, 8, 36]; on CUDA, head_dim is a multiple of 8 up to 128");
  expect_error([&] { run(136, at::kHalf, 1); }, "up to 128: pad it with zeros");
  expect_error([&] { run(64, at::kFloat, 1); }, "q is Float on cuda:0; expected Half or BFloat16");
  expect_error([&] { run(64, at::kHalf, 0); }, "scale is 0; expected a positive number on CUDA");
  expect_error([&] { run(64, at::kHalf, 1, false); }, "the mask is on cpu and q on cuda:0");
}

}  // namespace
}  // namespace seqfuse::masked_attention_cuda_test
