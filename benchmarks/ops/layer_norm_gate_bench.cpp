// The gate of an HSTU layer, dropout(u * layer_norm(o)), at the batches of ml_1m_hstu.gin and of
// ranking.
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench {
namespace {

void add(int64_t rows, int64_t dim) {
  const std::string shape = std::to_string(rows) + "x" + std::to_string(dim);
  const double matrix = static_cast<double>(rows * dim * 4);
  const auto ours = [](const std::vector<Tensor>& in) {
    return ops::layer_norm_gate(in[0], in[1], in[2], in[3], 1e-6, .2, 1);
  };
  const auto plain = [](const std::vector<Tensor>& in) {
    return at::dropout(in[1] * at::layer_norm(in[0], {in[0].size(1)}, in[2], in[3], 1e-6), .2,
                       true);
  };
  const auto inputs = [=] {
    return std::vector<Tensor>{at::randn({rows, dim}), at::randn({rows, dim}), at::randn({dim}),
                               at::randn({dim})};
  };
  compare("layer_norm_gate/forward/" + shape, 3 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{[=] { benchmark::DoNotOptimize(ours(in)); },
                                 [=] { benchmark::DoNotOptimize(plain(in)); }};
  });
  compare("layer_norm_gate/forward_backward/" + shape, 8 * matrix, [=] {
    const auto in = inputs();
    return std::pair<Work, Work>{with_backward(ours, in), with_backward(plain, in)};
  });
}

[[maybe_unused]] const bool added = [] {
  add(21000, 50);
  add(8192, 512);
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench
