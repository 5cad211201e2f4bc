// Rows scaled to unit length: the item table and the states of a retrieval step.
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::l2_normalize_bench {
namespace {

[[maybe_unused]] const bool added = [] {
  constexpr int64_t kRows = 21000, kDim = 50;
  const auto ours = [](const std::vector<Tensor>& in) { return ops::l2_normalize(in[0], 1e-6); };
  const auto plain = [](const std::vector<Tensor>& in) {
    return in[0] / in[0].norm(2, 1, true).clamp_min(1e-6);
  };
  compare("l2_normalize/forward_backward/21000x50", 5.0 * kRows * kDim * 4, [=] {
    const std::vector<Tensor> in{at::randn({kRows, kDim})};
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::l2_normalize_bench
