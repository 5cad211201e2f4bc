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
  const T* a = static_cast<const T*>(p.a) + range.row * stride + at.head * p.dim;
  const T* b = static_cast<const T*>(p.b) + at.head * p.dim;
  T* out = static_cast<T*>(p.out);

  Features<T, Width, Chunks> of_row;
  of_row.load(a, at.column, step, dim, at.active);
  EdgeBatches batches(p.graph, range, at.lane);
  while (batches.next()) {
    const int count = batches.count();
    for (int k = 0; k < count; k += at.edges * kInFlight) {
      Features<T, Width, Chunks> features[kInFlight];
      const T* rows[kInFlight];
      float dots[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int i = k + u * at.edges + at.slot;
        rows[u] = b + batches.neighbour(i) * stride;
        features[u].load(rows[u], at.column, step, dim, i < count && at.active);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) dots[u] = features[u].dot(of_row);
      for (int tile = 1; tile < map.dim_tiles; ++tile) {
        const int column = at.column + tile * step * Chunks;
        of_row.load(a, column, step, dim, at.active);
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
          const bool there = k + u * at.edges + at.slot < count && at.active;
          features[u].load(rows[u], column, step, dim, there);
          dots[u] += features[u].dot(of_row);
        }
      }
      if (map.dim_tiles > 1) of_row.load(a, at.column, step, dim, at.active);
      sum_over_head(dots, map.head_lanes);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const int i = k + u * at.edges + at.slot;
        const int64_t edge = batches.number(i);
        if (i < count && at.active && at.head_lane == 0)
          out[edge * p.heads + at.head] = from_float<T>(dots[u]);
      }
    }
  }
}

}  // namespace

cudaError_t edge_dots_cuda(const EdgeDotParams& p, DType dtype, cudaStream_t stream) {
  if (p.graph.rows == 0 || p.heads == 0) return cudaSuccess;
  return dispatch_features(dtype, p.dim, {p.a, p.b}, [&]<class T, int Width, int Chunks>() {
    const LaneMap map = lane_map(p.heads, p.dim, Width, Chunks);
    const dim3 grid(edge_blocks(p.graph), map.head_tiles);
    edge_dots_kernel<T, Width, Chunks><<<grid, 32 * kEdgeWarps, 0, stream>>>(p, map);
  });
}

}  // namespace seqfuse::ops
