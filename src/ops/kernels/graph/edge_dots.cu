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
  const int dim = static_cast<int>(p.dim), step = map.head_lanes() * Width;
  const int64_t stride = p.heads * p.dim;
  const int stride_bytes = static_cast<int>(stride * sizeof(T));
  const T* a = static_cast<const T*>(p.a) + range.row * stride + at.head * p.dim;
  const T* b = static_cast<const T*>(p.b) + at.head * p.dim;
  T* out = static_cast<T*>(p.out);

  const auto columns_of = [&](int tile) {
    return Columns<Width, Chunks>(at.column + tile * step * Chunks, step, dim);
  };
  const Columns<Width, Chunks> first = columns_of(0);
  Features<T, Width, Chunks> of_row;
  of_row.load(a, first);
  EdgeStream<kInFlight> edges(p.graph, range, at);
  for_each_edges(edges, [&](auto full) {
    Features<T, Width, Chunks> features[kInFlight];
    float dots[kInFlight];
    const auto read = [&](const Columns<Width, Chunks>& columns) {
#pragma unroll
      for (int u = 0; u < kInFlight; ++u)
        features[u].load(node_row(b, edges.neighbour(u), stride_bytes), columns);
    };
    read(first);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) dots[u] = features[u].dot(of_row, first);
    for (int tile = 1; tile < map.dim_tiles; ++tile) {
      const Columns<Width, Chunks> columns = columns_of(tile);
      of_row.load(a, columns);
      read(columns);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) dots[u] += features[u].dot(of_row, columns);
    }
    if (map.dim_tiles > 1) of_row.load(a, first);
    sum_over_head(dots, map.head_lanes());
    if (!at.active || at.head_lane > 0) return;
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (full || edges.has(u)) out[edges.number(u) * p.heads + at.head] = from_float<T>(dots[u]);
    }
  });
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
