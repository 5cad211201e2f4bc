// Moving rows of jagged tensors, against gathers in PyTorch with precomputed indices.
#include "benchmarks/ops/op_bench.h"
#include "ops/torch/ops.h"

namespace seqfuse::bench::jagged_bench {
namespace {

constexpr int64_t kBatch = 128, kDim = 64;

Tensor lengths() {
  at::manual_seed(1);
  return at::randint(20, 200, {kBatch}, at::kLong);
}

[[maybe_unused]] const bool added = [] {
  const Tensor offsets = ops::lengths_to_offsets(lengths());
  const int64_t tokens = offsets[-1].item<int64_t>();
  const double matrix = static_cast<double>(tokens * kDim * 4);
  compare("jagged_concat/two_parts", 4 * matrix, [=] {
    const Tensor a = at::randn({tokens, kDim}), b = at::randn({tokens, kDim});
    const Tensor place = at::arange(tokens, at::kLong).view({tokens, 1});
    const Tensor index = ops::jagged_concat({place, place + tokens}, {offsets, offsets}).flatten();
    return std::pair<Work, Work>{
        [=] { benchmark::DoNotOptimize(ops::jagged_concat({a, b}, {offsets, offsets})); },
        [=] { benchmark::DoNotOptimize(at::cat({a, b}).index_select(0, index)); }};
  });
  compare("jagged_to_dense/200", matrix + kBatch * 200 * kDim * 4.0, [=] {
    const Tensor values = at::randn({tokens, kDim});
    const Tensor mask = at::arange(200).view({1, 200}).lt(lengths().view({kBatch, 1}));
    return std::pair<Work, Work>{
        [=] { benchmark::DoNotOptimize(ops::jagged_to_dense(values, offsets, 200, 0)); },
        [=] {
          Tensor dense = at::zeros({kBatch, 200, kDim});
          dense.index_put_({mask}, values);
          benchmark::DoNotOptimize(dense);
        }};
  });
  return true;
}();

}  // namespace
}  // namespace seqfuse::bench::jagged_bench
