// Position encoding with its table's gradient, against gathering and scattering in PyTorch.
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::encoding_bench {
namespace {

[[maybe_unused]] const bool added = [] {
  constexpr int64_t kBatch = 128, kDim = 50, kRows = 211;
  at::manual_seed(1);
  const Tensor offsets = ops::lengths_to_offsets(at::randint(20, 200, {kBatch}, at::kLong));
  const int64_t tokens = offsets[-1].item<int64_t>();
  const Tensor zeros = at::zeros({tokens, 1}, at::kDouble);
  const Tensor index =
      ops::position_encoding(zeros, at::arange(kRows, at::kDouble).view({kRows, 1}), offsets, {}, 1)
          .flatten()
          .to(at::kLong);
  const auto ours = [=](const std::vector<Tensor>& in) {
    return ops::position_encoding(in[0], in[1], offsets, {}, 7);
  };
  const auto plain = [=](const std::vector<Tensor>& in) {
    return 7 * in[0] + in[1].index_select(0, index);
  };
  compare("position_encoding/forward_backward", 4.0 * static_cast<double>(tokens * kDim) * 4, [=] {
    const std::vector<Tensor> in{at::randn({tokens, kDim}), at::randn({kRows, kDim})};
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::encoding_bench
