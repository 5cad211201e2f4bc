// Dot products of the two ends of each edge. A lane keeps its features of the row while it reads those
// of the neighbours.
#include "ops/kernels/graph/edge_lanes.cuh"
#include "ops/kernels/graph/edge_ops.h"

namespace seqfuse::ops {
namespace {

using namespace cuda;

template <class T, int Width, int Chunks>
__global__ void __launch_bounds__(32 * kEdgeWarps) edge_dots_kernel(EdgeDotParams p, LaneMap map) {
  EdgeRange range;
  if (!edge_range(p.graph, edge_item(), range)) return;
  const LanePlace at(map, blockIdx.y, p.heads, Width);
  constexpr int kInFlight = edges_in_flight(Chunks);
  const int dim = static_cast<int>(p.dim), step = map.head_lanes * Width;
  const int64_t stride = p.heads * p.dim;
  const int stride_bytes = static_cast<int>(stride * sizeof(T));
  const T* a = static_cast<const T*>(p.a) + range.row * stride + at.head * p.dim;
  const T* b = static_cast<const T*>(p.b) + at.head * p.dim;
  T* out = static_cast<T*>(p.out);

  Features<T, Width, Chunks> of_row;
  of_row.load(a, at.column, step, dim, at.active);
  EdgeStream<kInFlight> edges(p.graph, range, at);
  while (edges.next()) {
    Features<T, Width, Chunks> features[kInFlight];
    float dots[kInFlight];
    const auto read = [&](int column) {
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int neighbour = edges.neighbour(u);
        features[u].load(node_row(b, neighbour, stride_bytes), column, step, dim,
                         neighbour >= 0 && at.active);
      }
    };
    read(at.column);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) dots[u] = features[u].dot(of_row);
    for (int tile = 1; tile < map.dim_tiles; ++tile) {
      const int column = at.column + tile * step * Chunks;
      of_row.load(a, column, step, dim, at.active);
      read(column);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) dots[u] += features[u].dot(of_row);
    }
    if (map.dim_tiles > 1) of_row.load(a, at.column, step, dim, at.active);
    sum_over_head(dots, map.head_lanes);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (edges.neighbour(u) >= 0 && at.active && at.head_lane == 0)
        out[edges.number(u) * p.heads + at.head] = from_float<T>(dots[u]);
    }
  }
}

}  // namespace

cudaError_t edge_dots_cuda(const EdgeDotParams& p, DType dtype, cudaStream_t stream) {
  if (!are_addressable(p.heads, p.dim)) return cudaErrorInvalidValue;
  if (p.graph.rows == 0 || p.heads == 0) return cudaSuccess;
  return dispatch_features(dtype, p.dim, {p.a, p.b}, [&]<class T, int Width, int Chunks>() {
    const LaneMap map = lane_map(p.heads, p.dim, Width, Chunks);
    const dim3 grid(edge_blocks(p.graph), map.head_tiles);
    edge_dots_kernel<T, Width, Chunks><<<grid, 32 * kEdgeWarps, 0, stream>>>(p, map);
  });
}

}  // namespace seqfuse::ops
