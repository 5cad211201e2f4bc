// Sums of neighbours' features with given weights.
#include "ops/kernels/graph/edge_ops.h"
#include "ops/kernels/graph/edge_sums.cuh"

namespace seqfuse::ops {
namespace {

template <class T>
struct GivenWeights {
  static constexpr bool kSoftmax = false;
  struct Row {};

  const T* weights;  // null: ones
  int64_t heads;

  __device__ Row row(int64_t, int64_t) const { return {}; }
  template <class Number>
  __device__ float operator()(Row, int64_t, const Number& number, int64_t head) const {
    return weights ? cuda::to_float(weights[number() * heads + head]) : 1;
  }
};

}  // namespace

cudaError_t edge_sums_cuda(const EdgeSumParams& p, DType dtype, cudaStream_t stream) {
  return cuda::launch_edge_sums(
      p.graph, p.heads, p.dim, p.x, p.out, p.workspace, nullptr, dtype, stream,
      [&]<class T>() { return GivenWeights<T>{static_cast<const T*>(p.weights), p.heads}; });
}

}  // namespace seqfuse::ops
