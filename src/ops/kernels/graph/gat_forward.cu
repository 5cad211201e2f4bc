// GAT attention, forward.
#include "ops/kernels/graph/gat_score.cuh"

namespace seqfuse::ops {

cudaError_t gat_forward_cuda(const GatParams& p, DType dtype, cudaStream_t stream) {
  if (p.dim > kMostGatDim) return cudaErrorInvalidValue;
  return cuda::launch_edge_sums(p.graph.by_row, p.heads, p.dim, p.x, p.out, p.workspace,
                                static_cast<float*>(p.lse), dtype, stream,
                                [&]<class T>() { return cuda::gat_score<T>(p); });
}

}  // namespace seqfuse::ops
