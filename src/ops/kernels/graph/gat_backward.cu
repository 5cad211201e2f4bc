// GAT attention, backward, without atomics. Columns read dout of their rows once, for dx, dright and
// the gradients of all scores; sums of the latter over the rows are dleft.
#include "ops/kernels/graph/gat_score.cuh"

namespace seqfuse::ops {
namespace {

using namespace cuda;

// What columns read of a row and head. lse: times log2(e), +infinity for a row that no edge counts
// in, so that its weights are 0.
struct alignas(16) RowStats {
  float left, lse, delta, unused;
};

template <class T>
struct GatBackward {
  GatParams p;
  GatScore<T> score;
  LaneMap map;
  RowStats* stats = nullptr;      // [rows, heads]
  float* dscores = nullptr;       // [edges, heads], by number of the edge
  float* dx_parts = nullptr;      // [parts by column, heads, dim]
  float* dright_parts = nullptr;  // [parts by column, heads]
  float* dleft_parts = nullptr;   // [parts by row, heads]
};

// A group of lanes takes a row.
template <class T, int Width, int Chunks>
__global__ void __launch_bounds__(32 * kEdgeWarps) gat_stats_kernel(GatBackward<T> g) {
  const LanePlace at(g.map, blockIdx.y, g.p.heads, Width);
  const int64_t row = edge_item() * at.edges + at.slot;
  const bool there = row < g.p.graph.by_row.rows && at.active;
  const int dim = static_cast<int>(g.p.dim), step = g.map.head_lanes() * Width;
  const int64_t place = row * g.p.heads + at.head;
  Features<T, Width, Chunks> out, dout;
  const Columns<Width, Chunks> columns(at.column, step, dim);
  const int64_t first = (there ? place : 0) * g.p.dim;
  out.load(static_cast<const T*>(g.p.out) + first, columns);
  dout.load(static_cast<const T*>(g.p.dout) + first, columns);
  float delta[1] = {out.dot(dout, columns)};
  sum_over_head(delta, g.map.head_lanes());
  if (!there || at.head_lane > 0) return;
  const float lse = static_cast<const float*>(g.p.lse)[place];
  g.stats[place] = {g.score.row(row, at.head), lse == -INFINITY ? INFINITY : lse * kLog2e, delta[0],
                    0};
}

template <class T, int Width, int Chunks>
__global__ void __launch_bounds__(32 * kEdgeWarps) gat_columns_kernel(GatBackward<T> g) {
  const GatParams& p = g.p;
  EdgeRange range;
  if (!edge_range(p.graph.by_column, edge_item(), range)) return;
  const LanePlace at(g.map, blockIdx.y, p.heads, Width);
  constexpr int kInFlight = edges_in_flight(Chunks);
  const int dim = static_cast<int>(p.dim), step = g.map.head_lanes() * Width;
  const int64_t stride = p.heads * p.dim;
  const int stride_bytes = static_cast<int>(stride * sizeof(T));
  const T* from = static_cast<const T*>(p.dout) + at.head * p.dim;
  const float right = g.score.right_of(range.row, at.head);
  Features<T, Width, Chunks> x;
  const Columns<Width, Chunks> columns(at.column, step, dim);
  x.load(static_cast<const T*>(p.x) + range.row * stride + at.head * p.dim, columns);

  FeatureSums<Width, Chunks> dx;
  float dright = 0;
  EdgeStream<kInFlight> edges(p.graph.by_column, range, at);
  for_each_edges(edges, [&](auto full) {
    Features<T, Width, Chunks> features[kInFlight];
    RowStats stats[kInFlight];
    float dots[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int row = edges.neighbour(u);
      features[u].load(node_row(from, row, stride_bytes), columns);
      stats[u] = g.stats[row * p.heads + at.head];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) dots[u] = features[u].dot(x, columns);
    sum_over_head(dots, g.map.head_lanes());
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (!at.active || !(full || edges.has(u))) continue;
      const int64_t edge = edges.number(u);
      const float sum = stats[u].left + right;
      const float kept = g.score.kept([&] { return edge; }, at.head);
      const float weight = exp2f(g.score.of_sum(sum) - stats[u].lse);
      const float dscore =
          weight * (kept * dots[u] - stats[u].delta) * (sum > 0 ? 1 : g.score.slope);
      dright += dscore;
      dx.add(weight * kept, features[u]);
      if (at.head_lane == 0) g.dscores[edge * p.heads + at.head] = dscore;
    }
  });
  for (int mask = g.map.edge_lanes(); mask < 32; mask *= 2) {
    dright += __shfl_xor_sync(kAllLanes, dright, mask);
    dx.join(mask, 1, 1);
  }
  if (at.slot > 0 || !at.active) return;
  const bool whole = range.part < 0;
  const int64_t place = (whole ? range.row : range.part) * p.heads + at.head;
  if (whole) {
    dx.store(static_cast<T*>(p.dx) + place * p.dim, columns);
  } else {
    dx.store(g.dx_parts + place * p.dim, columns);
  }
  if (at.head_lane > 0) return;
  if (whole) {
    static_cast<T*>(p.dright)[place] = from_float<T>(dright);
  } else {
    g.dright_parts[place] = dright;
  }
}

// Sums of dscores over rows. map: of one feature a head.
template <class T>
__global__ void __launch_bounds__(32 * kEdgeWarps) gat_left_kernel(GatBackward<T> g, LaneMap map) {
  EdgeRange range;
  if (!edge_range(g.p.graph.by_row, edge_item(), range)) return;
  const LanePlace at(map, blockIdx.y, g.p.heads, 1);
  float sum = 0;
  if (at.active) {
#pragma unroll 4
    for (int64_t e = range.begin + at.slot; e < range.end; e += at.edges)
      sum += g.dscores[e * g.p.heads + at.head];
  }
  for (int mask = map.edge_lanes(); mask < 32; mask *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, mask);
  if (at.slot > 0 || !at.active) return;
  if (range.part < 0) {
    static_cast<T*>(g.p.dleft)[range.row * g.p.heads + at.head] = from_float<T>(sum);
  } else {
    g.dleft_parts[range.part * g.p.heads + at.head] = sum;
  }
}

// The workspace in pieces: gat_backward_workspace() floats.
template <class T>
GatBackward<T> with_workspace(const GatParams& p, const LaneMap& map) {
  GatBackward<T> g{.p = p, .score = gat_score<T>(p), .map = map};
  float* next = p.workspace;
  const auto take = [&](int64_t floats) {
    float* const taken = next;
    next += floats;
    return taken;
  };
  g.stats = reinterpret_cast<RowStats*>(take(p.graph.by_row.rows * p.heads * 4));
  g.dx_parts = take(p.graph.by_column.parts * p.heads * p.dim);
  g.dright_parts = take(p.graph.by_column.parts * p.heads);
  g.dscores = take(p.graph.by_row.edges * p.heads);
  g.dleft_parts = take(p.graph.by_row.parts * p.heads);
  return g;
}

}  // namespace

cudaError_t gat_backward_cuda(const GatParams& p, DType dtype, cudaStream_t stream) {
  if (p.dim > kMostGatDim || !are_addressable(p.heads, p.dim)) return cudaErrorInvalidValue;
  const EdgeLists &rows = p.graph.by_row, &columns = p.graph.by_column;
  if (p.heads == 0) return cudaSuccess;
  return dispatch_features(
      dtype, p.dim, {p.x, p.dout, p.out, p.dx, p.workspace}, [&]<class T, int Width, int Chunks>() {
        const LaneMap map = lane_map(p.heads, p.dim, Width, Chunks);
        const LaneMap of_scores = lane_map(p.heads, 1, 1, 1);
        const auto g = with_workspace<T>(p, map);
        constexpr int kThreads = 32 * kEdgeWarps;
        if (rows.rows > 0) {
          const unsigned blocks = divide_up(rows.rows, kEdgeWarps * map.edges());
          gat_stats_kernel<T, Width, Chunks>
              <<<dim3(blocks, map.head_tiles), kThreads, 0, stream>>>(g);
        }
        if (columns.rows > 0) {
          gat_columns_kernel<T, Width, Chunks>
              <<<dim3(edge_blocks(columns), map.head_tiles), kThreads, 0, stream>>>(g);
          join_parts<T>(columns, {g.dx_parts, static_cast<T*>(p.dx), p.heads * p.dim},
                        {g.dright_parts, static_cast<T*>(p.dright), p.heads}, stream);
        }
        if (rows.rows > 0) {
          gat_left_kernel<T>
              <<<dim3(edge_blocks(rows), of_scores.head_tiles), kThreads, 0, stream>>>(g,
                                                                                       of_scores);
          join_parts<T>(rows, {g.dleft_parts, static_cast<T*>(p.dleft), p.heads}, {}, stream);
        }
      });
}

}  // namespace seqfuse::ops
