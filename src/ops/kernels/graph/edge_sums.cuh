// The kernel of weighted sums over edges, for any score: out = sum of score(edge) x[neighbour], or of
// the softmax of the scores of a row, which is taken on the way (the largest score so far is kept, and
// sums are scaled when it grows), so that features are read once.
//
// A Score has kSoftmax; Row row(int64_t row, int64_t head), what it knows of a row; float
// operator()(Row, int64_t neighbour, number, int64_t head), for a softmax times log2(e). With a softmax
// also float kept(number, int64_t head), a factor of the weight that it does not see. number() is the
// edge's number.
#pragma once

#include "ops/kernels/graph/edge_lanes.cuh"

namespace seqfuse::ops::cuda {

inline constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

// The largest score so far, and the sum of 2^(score - top).
struct SoftmaxSums {
  float top = -INFINITY, total = 0;

  // 2^(score - top); 0 for -infinity, also if there is nothing else.
  static __device__ float power(float score, float top) {
    return score == -INFINITY ? 0 : exp2f(score - top);
  }
};

template <class T>
struct EdgeSumArguments {
  EdgeLists graph;
  LaneMap map;
  int64_t heads, dim;
  const T* x;
  T* out;
  float* parts;              // [graph.parts, heads, dim]
  SoftmaxSums* part_totals;  // [graph.parts, heads]
  float* lse;                // [rows, heads]
};

template <class T, int Width, int Chunks, class Score>
__global__ void __launch_bounds__(32 * kEdgeWarps)
    edge_sums_kernel(EdgeSumArguments<T> p, Score score) {
  EdgeRange range;
  if (!edge_range(p.graph, edge_item(), range)) return;
  const LanePlace at(p.map, blockIdx.y, p.heads, Width);
  constexpr int kInFlight = edges_in_flight(Chunks);
  const int dim = static_cast<int>(p.dim), step = p.map.head_lanes() * Width;
  const Columns<Width, Chunks> columns(at.column + static_cast<int>(blockIdx.z) * step * Chunks,
                                       step, dim);
  const int64_t stride = p.heads * p.dim;
  const int stride_bytes = static_cast<int>(stride * sizeof(T));
  const T* from = p.x + at.head * p.dim;
  const auto row = score.row(range.row, at.head);

  FeatureSums<Width, Chunks> sums;
  SoftmaxSums softmax;
  EdgeStream<kInFlight> edges(p.graph, range, at);
  for_each_edges(edges, [&](auto full) {
    Features<T, Width, Chunks> features[kInFlight];
    float weights[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      features[u].load(node_row(from, edges.neighbour(u), stride_bytes), columns);
      weights[u] = score(row, edges.neighbour(u), [&] { return edges.number(u); }, at.head);
    }
    if constexpr (!full) {
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (edges.has(u)) continue;
        features[u].clear();  // which may be infinite
        weights[u] = Score::kSoftmax ? -INFINITY : 0;
      }
    }
    if constexpr (Score::kSoftmax) {
      float top = softmax.top;
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) top = fmaxf(top, weights[u]);
      const float before = SoftmaxSums::power(softmax.top, top);
      softmax.top = top;
      softmax.total *= before;
      sums.scale(before);
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        weights[u] = SoftmaxSums::power(weights[u], top);
        softmax.total += weights[u];
        weights[u] *= score.kept([&] { return edges.number(u); }, at.head);
      }
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) sums.add(weights[u], features[u]);
  });

  // Over the edges that were read at a time.
  for (int mask = p.map.edge_lanes(); mask < 32; mask *= 2) {
    float mine = 1, theirs = 1;
    if constexpr (Score::kSoftmax) {
      const float other_top = __shfl_xor_sync(kAllLanes, softmax.top, mask);
      const float other_total = __shfl_xor_sync(kAllLanes, softmax.total, mask);
      const float top = fmaxf(softmax.top, other_top);
      mine = SoftmaxSums::power(softmax.top, top);
      theirs = SoftmaxSums::power(other_top, top);
      softmax.top = top;
      softmax.total = softmax.total * mine + other_total * theirs;
    }
    sums.join(mask, mine, theirs);
  }
  if (at.slot > 0 || !at.active) return;
  const bool first = at.head_lane == 0 && blockIdx.z == 0;
  if (range.part >= 0) {
    sums.store(p.parts + range.part * stride + at.head * p.dim, columns);
    if (Score::kSoftmax && first) p.part_totals[range.part * p.heads + at.head] = softmax;
    return;
  }
  if constexpr (Score::kSoftmax) {
    const bool none = softmax.total == 0;  // not so if it is NaN
    sums.scale(none ? 0 : 1 / softmax.total);
    if (first) {
      p.lse[range.row * p.heads + at.head] =
          none ? -INFINITY : (softmax.top + log2f(softmax.total)) * kLn2;
    }
  }
  sums.store(p.out + range.row * stride + at.head * p.dim, columns);
}

// The softmax of a long row from its parts.
template <class T>
__global__ void __launch_bounds__(128) join_softmax_kernel(EdgeSumArguments<T> p) {
  const int64_t stride = p.heads * p.dim, column = int64_t{blockIdx.y} * 128 + threadIdx.x;
  if (column >= stride) return;
  const int64_t head = column / p.dim, row = p.graph.long_row[blockIdx.x];
  const int begin = p.graph.long_begin[blockIdx.x], end = p.graph.long_begin[blockIdx.x + 1];
  float top = -INFINITY, total = 0, sum = 0;
  for (int part = begin; part < end; ++part)
    top = fmaxf(top, p.part_totals[part * p.heads + head].top);
#pragma unroll 4
  for (int part = begin; part < end; ++part) {
    const SoftmaxSums& softmax = p.part_totals[part * p.heads + head];
    const float factor = SoftmaxSums::power(softmax.top, top);
    total += softmax.total * factor;
    sum += p.parts[part * stride + column] * factor;
  }
  const bool none = total == 0;
  p.out[row * stride + column] = from_float<T>(none ? 0 : sum / total);
  if (column % p.dim == 0)
    p.lse[row * p.heads + head] = none ? -INFINITY : (top + log2f(total)) * kLn2;
}

// Scores of arguments: make_score.template operator()<T>().
template <class MakeScore>
cudaError_t launch_edge_sums(const EdgeLists& graph, int64_t heads, int64_t dim, const void* x,
                             void* out, float* workspace, float* lse, DType dtype,
                             cudaStream_t stream, MakeScore&& make_score) {
  if (!are_addressable(heads, dim)) return cudaErrorInvalidValue;
  if (graph.rows == 0 || heads == 0) return cudaSuccess;
  return dispatch_features(dtype, dim, {x, out, workspace}, [&]<class T, int Width, int Chunks>() {
    const auto score = make_score.template operator()<T>();
    const LaneMap map = lane_map(heads, dim, Width, Chunks);
    const EdgeSumArguments<T> arguments{
        .graph = graph,
        .map = map,
        .heads = heads,
        .dim = dim,
        .x = static_cast<const T*>(x),
        .out = static_cast<T*>(out),
        .parts = workspace,
        .part_totals = reinterpret_cast<SoftmaxSums*>(workspace + graph.parts * heads * dim),
        .lse = lse};
    const dim3 grid(edge_blocks(graph), map.head_tiles, map.dim_tiles);
    edge_sums_kernel<T, Width, Chunks><<<grid, 32 * kEdgeWarps, 0, stream>>>(arguments, score);
    if constexpr (decltype(score)::kSoftmax) {
      if (graph.long_rows == 0) return;
      const dim3 rows(static_cast<unsigned>(graph.long_rows), divide_up(heads * dim, 128));
      join_softmax_kernel<T><<<rows, 128, 0, stream>>>(arguments);
    } else {
      join_parts<T>(graph, {workspace, static_cast<T*>(out), heads * dim}, {}, stream);
    }
  });
}

}  // namespace seqfuse::ops::cuda
