// Sequences of a large batch against the same sequences in small batches. The work list is built
// from slices of 1024 sequences, which are cut into groups.
#include <ostream>
#include <string>
#include <vector>

#include "tests/ops/cuda_test.h"

namespace seqfuse::hstu_attention_batches_cuda_test {
namespace {

using at::Tensor;
using namespace seqfuse::test;

constexpr int64_t kSequences = 2300, kHeads = 2;

struct Case {
  int64_t head_dim;
  bool causal = true, targets = false, window = false;
  bool alone = false;  // targets without history and contexts
  bool bias = false;
  bool deterministic = true;
  bool hole = false;  // a slice of sequences of length 0
};
void PrintTo(const Case& c, std::ostream* to) {
  *to << "head_dim " << c.head_dim << (c.causal ? ", causal" : "") << (c.targets ? ", targets" : "")
      << (c.window ? ", window" : "") << (c.alone ? ", alone" : "") << (c.bias ? ", bias" : "")
      << (c.deterministic ? "" : ", not deterministic") << (c.hole ? ", hole" : "");
}

class HstuAttentionBatchesCudaTest : public CudaTestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Masks, HstuAttentionBatchesCudaTest,
    testing::Values(Case{32, true, false, false}, Case{32, false, false, false},
                    Case{128, true, false, false}, Case{128, true, true, true},
                    Case{256, true, false, false}, Case{256, true, true, false},
                    Case{256, true, true, true}, Case{256, true, true, false, true},
                    Case{.head_dim = 64, .targets = true, .bias = true},
                    Case{.head_dim = 64, .deterministic = false, .hole = true}));

// Which pieces a block works on must not change a bit. In the large batch blocks take several
// pieces, in the parts mostly one.
TEST_P(HstuAttentionBatchesCudaTest, ALargeBatchIsItsPartsSideBySide) {
  const Deterministic mode(GetParam().deterministic);
  // Enough rows for several groups, with long, short and empty sequences.
  const Tensor lengths =
      (at::rand({kSequences}, at::kDouble).pow(4) * 1000).floor().to(at::kLong).cuda();
  if (GetParam().hole) lengths.slice(0, 1024, 2048).zero_();
  const Tensor offsets = ops::lengths_to_offsets(lengths);
  const int64_t tokens = offsets[-1].item<int64_t>();
  const auto up_to = [&](int64_t most) {
    return at::minimum(lengths.div(3, "floor"), at::randint(most + 1, {kSequences}).to(lengths));
  };
  const Tensor contexts = up_to(100), targets = up_to(200);
  std::vector<Tensor> arguments;
  for (int i = 0; i < 4; ++i) {
    arguments.push_back(at::randn({tokens, kHeads, GetParam().head_dim},
                                  at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)));
  }
  constexpr int64_t kLongest = 1000;
  const Tensor bias = at::randn({2 * kLongest - 1}, at::TensorOptions(at::kCUDA));
  // For sequences [first, end): the result, and the gradients of q, k, v and the bias.
  const auto results = [&](int64_t first, int64_t end) {
    const int64_t from = offsets[first].item<int64_t>(), to = offsets[end].item<int64_t>();
    const Tensor own = offsets.slice(0, first, end + 1) - from;
    std::vector<Tensor> rows;
    for (const Tensor& all : arguments) rows.push_back(all.slice(0, from, to));
    ops::HstuAttentionOptions options{
        .scaling_seqlen = 100, .causal = GetParam().causal, .max_seqlen = kLongest};
    if (GetParam().targets) {
      if (!GetParam().alone) options.num_contexts = contexts.slice(0, first, end);
      options.num_targets = (GetParam().alone ? lengths : targets).slice(0, first, end);
      options.target_group_size = 30;
    }
    if (GetParam().window) options.max_attn_len = 150;
    std::vector<Tensor> leaves = {rows[0], rows[1], rows[2]};
    if (GetParam().bias) leaves.push_back(bias);
    return with_gradients(
        [&](const std::vector<Tensor>& t) {
          if (GetParam().bias) options.position_bias = t[3];
          return ops::hstu_attention(t[0], t[1], t[2], own, own, options);
        },
        leaves, rows[3]);
  };
  const std::vector<Tensor> whole = results(0, kSequences);
  constexpr int64_t kPart = 25;
  Tensor bias_gradient = at::zeros(bias.sizes(), at::kDouble);  // summed over the parts
  for (int64_t first = 0; first < kSequences; first += kPart) {
    const int64_t end = first + kPart;
    const std::vector<Tensor> part = results(first, end);
    const std::string what = "sequences from " + std::to_string(first);
    const auto there = [&](size_t i) {
      return whole[i].slice(0, offsets[first].item<int64_t>(), offsets[end].item<int64_t>());
    };
    expect_equal({there(0), there(2), there(3)}, {part[0], part[2], part[3]}, what);
    if (GetParam().deterministic) {
      expect_equal({there(1)}, {part[1]}, what + ", dq");
    } else {  // summed in the order in which blocks arrive
      expect_close({there(1)}, {part[1]}, what + ", dq");
    }
    if (GetParam().bias) bias_gradient += to64(part[4]);
  }
  if (GetParam().bias) {
    EXPECT_LE(max_abs(to64(whole[4]) - bias_gradient), 1e-5 * (1 + max_abs(bias_gradient)));
  }
}

}  // namespace
}  // namespace seqfuse::hstu_attention_batches_cuda_test
