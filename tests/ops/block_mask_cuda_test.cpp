// Masks built on a GPU are, list by list, those built on the CPU.
#include "ops/torch/attention/block_mask.h"
#include "tests/ops/cuda_test.h"
#include "tests/ops/masked_attention_problem.h"

namespace seqfuse::block_mask_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr const char* kLists[] = {"row_begin",    "column", "bitmap",        "row_order",
                                  "column_begin", "row",    "column_bitmap", "column_order",
                                  "bits",         "seen"};

void expect_same_lists(const Mask& mask, const std::string& what) {
  const auto expected = ops::build_block_mask(mask, at::kCPU);
  const auto actual = ops::build_block_mask(mask, at::Device(at::kCUDA, 0));
  EXPECT_EQ(actual.sizes(), expected.sizes()) << what;
  for (size_t i = 0; i < std::size(kLists); ++i)
    EXPECT_TRUE(at::equal(actual.lists[i].cpu(), expected.lists[i])) << what << " " << kLists[i];
}

class BlockMaskCuda : public CudaTestWithParam<MaskedKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, BlockMaskCuda, testing::ValuesIn(kMaskedKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(BlockMaskCuda, HasTheListsOfTheCpu) {
  using Lengths = std::pair<int64_t, int64_t>;
  for (const auto& [queries, keys] : {Lengths{0, 0},
                                      {1, 1},
                                      {64, 64},
                                      {65, 65},
                                      {1000, 1000},
                                      {5, 200},
                                      {200, 70},
                                      {0, 65},
                                      {65, 0},
                                      {2100, 4100}}) {
    expect_same_lists(GetParam().make(queries, keys),
                      std::to_string(queries) + " x " + std::to_string(keys));
  }
}

class LongBlockMaskCuda : public CudaTest {};

TEST_F(LongBlockMaskCuda, HasTheListsOfTheCpu) {
  constexpr int64_t kTokens = 96 * 1024;
  expect_same_lists(masks::longformer(kTokens, kTokens, 256, 64), "longformer of 98304 tokens");
}

}  // namespace
}  // namespace seqfuse::block_mask_cuda_test
