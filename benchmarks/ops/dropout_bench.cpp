// Dropout, which recomputes its mask in the backward pass instead of storing it.
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::dropout_bench {
namespace {

[[maybe_unused]] const bool added = [] {
  constexpr int64_t kRows = 16384, kDim = 200;
  const auto ours = [](const std::vector<Tensor>& in) { return ops::dropout(in[0], .2, 1); };
  const auto plain = [](const std::vector<Tensor>& in) { return at::dropout(in[0], .2, true); };
  compare("dropout/forward/16384x200", 2.0 * kRows * kDim * 4, [=] {
    const std::vector<Tensor> in{at::randn({kRows, kDim})};
    return std::pair<Work, Work>{[=] { benchmark::DoNotOptimize(ours(in)); },
                                 [=] { benchmark::DoNotOptimize(plain(in)); }};
  });
  compare("dropout/forward_backward/16384x200", 4.0 * kRows * kDim * 4, [=] {
    const std::vector<Tensor> in{at::randn({kRows, kDim})};
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::dropout_bench
