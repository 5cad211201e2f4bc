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
  for (const int64_t n : {1, 7, 63, 64, 65, 127, 1000, 1025, 4096}) {
    for (const int64_t d : {32, 64, 80, 128}) {
      if (n == 4096 && d != 64) continue;  // float64 on the CPU takes long
      rounded(GetParam().make(n, n), {.batch = 2, .queries = n, .keys = n, .head_dim = d})
          .check("length " + std::to_string(n) + " head_dim " + std::to_string(d), types());
    }
  }
}

// Sets a variable of the environment for a scope.
class Way {
 public:
  explicit Way(const char* name) { setenv("SEQFUSE_MASKED_ATTENTION", name, 1); }
  ~Way() { unsetenv("SEQFUSE_MASKED_ATTENTION"); }
};

TEST_P(MaskedAttentionCudaKinds, IsTheFormulaEveryWay) {
  for (const char* name : {"blocks", "rows", "library"}) {
    const Way way(name);
    for (const int64_t d : {64, 80, 128}) {
      rounded(GetParam().make(300, 300),
              {.batch = 2, .heads = 2, .key_heads = 2, .queries = 300, .keys = 300, .head_dim = d})
          .check(std::string(name) + " head_dim " + std::to_string(d), types());
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

// By head_dim: 32 and 64 have kernels of their own on SM 9.0.
class MaskedAttentionCuda : public CudaTestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(HeadDims, MaskedAttentionCuda, testing::Values(32, 64));

TEST_P(MaskedAttentionCuda, EveryRunGivesTheSameBits) {
  const MaskedProblem problem(masks::longformer(300, 300, 20, 3), {.batch = 2,
                                                                   .heads = 4,
                                                                   .key_heads = 2,
                                                                   .queries = 300,
                                                                   .keys = 300,
                                                                   .head_dim = GetParam()});
  for (const at::TensorOptions& type : types())
    expect_equal(problem.ours(type), problem.ours(type), "again");
}

TEST_P(MaskedAttentionCuda, ARowIsTheSameWhateverOthersHold) {
  constexpr int64_t kRow = 150;
  const Mask mask = masks::window(300, 300, 20, 20) | masks::dilated(300, 300, 300, 300, 50);
  const MaskedProblem problem(
      mask, {.heads = 2, .key_heads = 2, .queries = 300, .keys = 300, .head_dim = GetParam()});
  MaskedProblem other = problem;
  const Tensor dense = oracle::dense_mask(mask)[0][0];
  other.q = at::randn_like(problem.q) * 30;
  other.q.select(2, kRow).copy_(problem.q.select(2, kRow));
  const Tensor unseen = dense[kRow].logical_not().view({1, 1, 300, 1});
  other.k = at::where(unseen, at::randn_like(problem.k) * 30, problem.k);
  other.v = at::where(unseen, at::randn_like(problem.v) * 30, problem.v);
  for (const char* name : {"blocks", "rows"}) {
    const Way way(name);
    for (const at::TensorOptions& type : types()) {
      const auto first = problem.ours(type), second = other.ours(type);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(at::equal(first[i].select(2, kRow), second[i].select(2, kRow))) << name;
    }
  }
}

TEST_P(MaskedAttentionCuda, PackedDocumentsAreDocumentsAlone) {
  const std::vector<int64_t> lengths{100, 37, 163};
  const MaskedProblem packed(
      masks::documents(300, 300, {lengths}),
      {.heads = 2, .key_heads = 2, .queries = 300, .keys = 300, .head_dim = GetParam()});
  for (const at::TensorOptions& type : types()) {
    const auto together = packed.ours(type);
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      MaskedProblem alone = packed;
      alone.mask = masks::full(length, length);
      for (Tensor* t : {&alone.q, &alone.k, &alone.v, &alone.dout, &alone.dlse})
        *t = t->narrow(2, begin, length);
      const auto expected = alone.ours(type);
      // Blocks begin elsewhere, so sums have another order.
      const double unit = type.dtype() == at::kHalf ? 0x1p-10 : 0x1p-7;
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(
            at::allclose(together[i].narrow(2, begin, length), expected[i], 4 * unit, 4 * unit))
            << "document at " << begin << ", result " << i;
      begin += length;
    }
  }
}

TEST_P(MaskedAttentionCuda, PaddedColumnsMayHoldAnything) {
  const Mask mask =
      masks::lengths(130, 130, std::vector<int64_t>{0, 130, 70}, std::vector<int64_t>{130, 0, 70});
  MaskedProblem problem(
      mask, {.batch = 3, .heads = 1, .queries = 130, .keys = 130, .head_dim = GetParam()});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Tensor* t : {&problem.k, &problem.v}) {
    t->slice(0, 0, 2).fill_(nan);
    t->select(0, 2).slice(1, 70).fill_(std::numeric_limits<double>::infinity());
  }
  for (const char* name : {"blocks", "rows"}) {
    const Way way(name);
    for (const at::TensorOptions& type : types()) {
      const auto results = problem.ours(type);
      for (size_t i = 0; i < results.size(); ++i) {
        const Tensor nothing = results[i].slice(0, 0, 2);
        EXPECT_TRUE(i == 1 ? nothing.isneginf().all().item<bool>()
                           : nothing.eq(0).all().item<bool>())
            << name << " result " << i;
        EXPECT_FALSE(results[i].isnan().any().item<bool>()) << name << " result " << i;
      }
    }
  }
}

TEST_P(MaskedAttentionCuda, ScoresOfMinusInfinityHaveNoWeight) {
  for (const char* name : {"blocks", "rows"}) {
    const Way way(name);
    for (const at::TensorOptions& type : types()) {
      const bool f16 = type.dtype() == at::kHalf;
      expect_low_scores_have_no_weight(LowScores::infinite_keys, type, GetParam(),
                                       f16 ? 0x1p-9 : 0x1p-6, name);
      if (f16) continue;  // its products cannot overflow
      expect_low_scores_have_no_weight(LowScores::overflowing_products, type, GetParam(), 0x1p-6,
                                       name);
    }
  }
}

class MaskedAttentionPoisonCuda : public CudaTest {};

TEST_F(MaskedAttentionPoisonCuda, WhatMemoryHeldBeforeDoesNotMatter) {
  for (const char* name : {"blocks", "rows"}) {
    const Way way(name);
    for (const at::TensorOptions& type : types()) expect_poison_changes_nothing(type, name);
  }
}

TEST_P(MaskedAttentionCuda, TakesRowsOfAnyAlignment) {
  const MaskedProblem problem(masks::causal(70, 70),
                              {.heads = 2, .queries = 70, .keys = 70, .head_dim = GetParam()});
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

class MaskedAttentionArgumentsCuda : public CudaTest {};

TEST_F(MaskedAttentionArgumentsCuda, WrongOnesAreExplained) {
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
  const Way way("fast");
  expect_error([&] { run(64, at::kHalf, 1); },
               "SEQFUSE_MASKED_ATTENTION is 'fast'; expected blocks, rows or library");
}

}  // namespace
}  // namespace seqfuse::masked_attention_cuda_test
