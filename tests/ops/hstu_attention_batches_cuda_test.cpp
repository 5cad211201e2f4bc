// Sequences of a large batch against the same in small batches: the list of work is made in slices
// of 1024 sequences, which are cut into groups.
#include <string>
#include <vector>

#include "tests/ops/cuda_test.h"

namespace seqfuse {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr int64_t kSequences = 2300, kHeads = 2, kHeadDim = 32;

class HstuAttentionBatchesCudaTest : public CudaTestWithParam<bool> {};  // causal
INSTANTIATE_TEST_SUITE_P(Masks, HstuAttentionBatchesCudaTest, testing::Bool());

TEST_P(HstuAttentionBatchesCudaTest, ALargeBatchIsItsPartsSideBySide) {
  const Deterministic mode;
  // Rows of tokens for several groups, with long sequences, short ones and none at all.
  const Tensor lengths =
      (at::rand({kSequences}, at::kDouble).pow(4) * 1000).floor().to(at::kLong).cuda();
  const Tensor offsets = ops::lengths_to_offsets(lengths);
  const int64_t tokens = offsets[-1].item<int64_t>();
  std::vector<Tensor> arguments;
  for (int i = 0; i < 4; ++i) {
    arguments.push_back(
        at::randn({tokens, kHeads, kHeadDim}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)));
  }
  // Of the sequences from `first` to `end`: the result, then the gradients of q, k and v.
  const auto results = [&](int64_t first, int64_t end) {
    const int64_t from = offsets[first].item<int64_t>(), to = offsets[end].item<int64_t>();
    const Tensor own = offsets.slice(0, first, end + 1) - from;
    std::vector<Tensor> rows;
    for (const Tensor& all : arguments) rows.push_back(all.slice(0, from, to));
    return with_gradients(
        [&](const std::vector<Tensor>& t) {
          return ops::hstu_attention(
              t[0], t[1], t[2], own, own,
              {.scaling_seqlen = 100, .causal = GetParam(), .max_seqlen = 1000});
        },
        {rows[0], rows[1], rows[2]}, rows[3]);
  };
  const std::vector<Tensor> whole = results(0, kSequences);
  constexpr int64_t kPart = 100;
  for (int64_t first = 0; first < kSequences; first += kPart) {
    const int64_t end = first + kPart;
    std::vector<Tensor> there;
    for (const Tensor& all : whole) {
      there.push_back(all.slice(0, offsets[first].item<int64_t>(), offsets[end].item<int64_t>()));
    }
    expect_equal(there, results(first, end), "sequences from " + std::to_string(first));
  }
}

}  // namespace
}  // namespace seqfuse
