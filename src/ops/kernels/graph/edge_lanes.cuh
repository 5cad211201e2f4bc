// How the kernels over edges share out work: a warp takes a row of the graph, or a part of a long one,
// and reads several of its edges at a time, each by a group of lanes.
#pragma once

#include <cmath>
#include <type_traits>

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/graph/edge_ops.h"

namespace seqfuse::ops::cuda {

inline constexpr int kEdgeWarps = 4;  // of a block
// Edges that a group of lanes reads at a time, of so many packs a lane.
constexpr int edges_in_flight(int chunks) {
  return chunks > 2 ? 2 : 4;
}
inline constexpr int kTileDim = 256;  // features of a head that a lane's registers hold, by a warp
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

// Lanes of a head and of an edge are powers of two: sums over a head are exchanges of lanes, and a lane
// finds its place by shifts.
struct LaneMap {
  int head_shift;  // a head has 2^head_shift lanes; each has Chunks packs of Width elements
  int edge_shift;  // an edge has as many times the heads that a group of lanes takes
  int head_tiles;  // the heads take so many groups
  int dim_tiles;   // and the features so many

  __host__ __device__ int head_lanes() const { return 1 << head_shift; }
  __host__ __device__ int edge_lanes() const { return 1 << edge_shift; }
  __host__ __device__ int edges() const { return 32 >> edge_shift; }  // read at a time by a warp
};

inline LaneMap lane_map(int64_t heads, int64_t dim, int width, int chunks) {
  const auto shift_of = [](int64_t n, int most) {
    int shift = 0;
    while (int64_t{1} << shift < n && shift < most) ++shift;
    return shift;
  };
  const int64_t packs = (dim + width - 1) / width;
  const int head_shift = shift_of(packs, 5), heads_shift = shift_of(heads, 5 - head_shift);
  return {.head_shift = head_shift,
          .edge_shift = head_shift + heads_shift,
          .head_tiles = static_cast<int>(divide_up(heads, int64_t{1} << heads_shift)),
          .dim_tiles = static_cast<int>(divide_up(packs, int64_t{chunks} << head_shift))};
}

// Calls launch.template operator()<T, Width, Chunks>() with the widest loads that the pointers and
// dim allow; 32 lanes hold up to kTileDim features.
template <class Launch>
cudaError_t dispatch_features(DType dtype, int64_t dim, std::initializer_list<const void*> pointers,
                              Launch&& launch) {
  return dispatch_type(dtype, [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T), kWideChunks = kTileDim / 32 / kWide;
    const bool wide = all_aligned(pointers, 16) && dim % kWide == 0;
    if (wide) {
      if constexpr (kWideChunks > 1) {
        if (dim > 32 * kWide) return launch.template operator()<T, kWide, kWideChunks>();
      }
      launch.template operator()<T, kWide, 1>();
    } else if (dim > 32) {
      launch.template operator()<T, 1, kTileDim / 32>();
    } else {
      launch.template operator()<T, 1, 1>();
    }
  });
}

// What a lane works on.
struct LanePlace {
  int slot;       // which of the edges read at a time
  int edges;      // read at a time by the warp
  int head_lane;  // within the head
  int head;       // 0 if not active
  int column;     // its first feature within the head, in the first tile
  bool active;    // it has a head

  __device__ LanePlace(const LaneMap& map, int head_tile, int64_t heads, int width) {
    const int lane = threadIdx.x % 32, of_edge = lane & (map.edge_lanes() - 1);
    slot = lane >> map.edge_shift;
    edges = map.edges();
    head_lane = lane & (map.head_lanes() - 1);
    column = head_lane * width;
    head = (head_tile << (map.edge_shift - map.head_shift)) + (of_edge >> map.head_shift);
    active = head < heads;
    if (!active) head = 0;
  }
};

// The edges of a row, or a part of them.
struct EdgeRange {
  int64_t row, begin, end;
  int64_t part;  // -1: the whole row
};

// Work item of a warp: first the parts, then the rows. False: none, or a long row, which its parts do.
__device__ inline bool edge_range(const EdgeLists& graph, int64_t item, EdgeRange& range) {
  if (item < graph.parts) {
    range.row = graph.part_row[item];
    range.begin = graph.part_begin[item];
    range.end = min(range.begin + graph.part_edges, graph.begin[range.row + 1]);
    range.part = item;
    return true;
  }
  range.row = item - graph.parts;
  if (range.row >= graph.rows) return false;
  range.begin = graph.begin[range.row];
  range.end = graph.begin[range.row + 1];
  range.part = -1;
  return range.end - range.begin <= graph.part_edges;
}

inline unsigned edge_blocks(const EdgeLists& graph) {
  return divide_up(graph.parts + graph.rows, kEdgeWarps);
}

__device__ inline int64_t edge_item() {
  return int64_t{blockIdx.x} * kEdgeWarps + threadIdx.x / 32;
}

// The edges of a range, InFlight next to each other at a time for each group of lanes. The neighbours of
// the next ones are on their way while these are used. Lanes of a group read the same addresses. A range
// has at most part_edges edges.
template <int InFlight>
class EdgeStream {
 public:
  __device__ EdgeStream(const EdgeLists& graph, const EdgeRange& range, const LanePlace& at)
      : neighbours_(graph.neighbour + range.begin),
        numbers_(graph.edge ? graph.edge + range.begin : nullptr),
        begin_(range.begin),
        size_(static_cast<int>(range.end - range.begin)),
        step_(InFlight * at.edges),
        first_(-step_),
        mine_(InFlight * at.slot) {
    if (size_ > 0) fetch();
  }

  // Goes to the next edges; false, in all lanes, if there are none for any group.
  __device__ bool next() {
    first_ += step_;
    if (first_ >= size_) return false;
#pragma unroll
    for (int u = 0; u < InFlight; ++u) neighbour_[u] = next_[u];
    fetch();
    return true;
  }

  // Whether all groups have all of their edges; the same in all lanes.
  __device__ bool full() const { return first_ + step_ <= size_; }
  // Whether this group has its edge u.
  __device__ bool has(int u) const { return first_ + mine_ + u < size_; }
  // Of edge u of this group; of the last edge if there is no such edge.
  __device__ int neighbour(int u) const { return neighbour_[u]; }
  __device__ int64_t number(int u) const {
    const int i = min(first_ + mine_ + u, size_ - 1);
    return numbers_ ? numbers_[i] : begin_ + i;
  }

 private:
  // Where there are no more, the last one again: no load is left out.
  __device__ void fetch() {
    const int i = first_ + step_ + mine_;
    const int32_t* from = neighbours_ + i;
    if (first_ + 2 * step_ <= size_) {
#pragma unroll
      for (int u = 0; u < InFlight; ++u) next_[u] = from[u];
    } else {
#pragma unroll
      for (int u = 0; u < InFlight; ++u) next_[u] = neighbours_[min(i + u, size_ - 1)];
    }
  }

  const int32_t* neighbours_;
  const int64_t* numbers_;
  int64_t begin_;
  int size_, step_, first_, mine_;
  int neighbour_[InFlight], next_[InFlight];
};

// Calls body(std::true_type) for edges that are all there, body(std::false_type) else. The latter loads the
// last edge instead of those that are not there, without a branch, and must leave them out of sums.
template <int InFlight, class Body>
__device__ void for_each_edges(EdgeStream<InFlight>& edges, Body&& body) {
  while (edges.next()) {
    if (edges.full()) {
      body(std::true_type{});
    } else {
      body(std::false_type{});
    }
  }
}

// Features of a node: one multiplication. stride: bytes from node to node.
template <class T>
__device__ const T* node_row(const T* of_first, int node, int stride) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(of_first) +
                                    int64_t{node} * stride);
}

// Whether kernels can address the features of a node so.
inline bool are_addressable(int64_t heads, int64_t dim) {
  return heads <= kMostFeatures && dim <= kMostFeatures && heads * dim <= kMostFeatures;
}

// Sum over the lanes of a head, for several values at once; the same bits in each lane of the head.
template <int N>
__device__ void sum_over_head(float (&v)[N], int head_lanes) {
  for (int mask = head_lanes / 2; mask > 0; mask /= 2) {
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] += __shfl_xor_sync(kAllLanes, v[n], mask);
  }
}

// The columns of a lane's packs: the last ones again past the end, so that loads need no test.
template <int Width, int Chunks>
struct Columns {
  int begin[Chunks];
  bool there[Chunks];

  // column: of the first pack. step: from pack to pack.
  __device__ Columns(int column, int step, int dim) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
      there[c] = column + c * step < dim;
      begin[c] = there[c] ? column + c * step : dim - Width;
    }
  }
};

// The features that a lane has of one node.
template <class T, int Width, int Chunks>
struct Features {
  Pack<T, Width> chunks[Chunks];

  // head_row: the first feature of the head.
  __device__ void load(const T* head_row, const Columns<Width, Chunks>& columns) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c)
      chunks[c] = *reinterpret_cast<const Pack<T, Width>*>(head_row + columns.begin[c]);
  }

  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) chunks[c] = {};
  }

  // Over the columns that are there.
  __device__ float dot(const Features& other, const Columns<Width, Chunks>& columns) const {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
      float of_chunk = 0;
#pragma unroll
      for (int k = 0; k < Width; ++k)
        of_chunk += to_float(chunks[c].v[k]) * to_float(other.chunks[c].v[k]);
      sum += columns.there[c] ? of_chunk : 0;
    }
    return sum;
  }
};

// Sums of neighbours' features in float32.
template <int Width, int Chunks>
struct FeatureSums {
  float v[Chunks][Width] = {};

  template <class T>
  __device__ void add(float weight, const Features<T, Width, Chunks>& features) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
#pragma unroll
      for (int k = 0; k < Width; ++k) v[c][k] += weight * to_float(features.chunks[c].v[k]);
    }
  }

  __device__ void scale(float factor) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
#pragma unroll
      for (int k = 0; k < Width; ++k) v[c][k] *= factor;
    }
  }

  // Adds those of the lane `mask` away, each multiplied by its factor.
  __device__ void join(int mask, float mine, float theirs) {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const float other = __shfl_xor_sync(kAllLanes, v[c][k], mask);
        v[c][k] = v[c][k] * mine + other * theirs;
      }
    }
  }

  template <class T>
  __device__ void store(T* head_row, const Columns<Width, Chunks>& columns) const {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
      if (!columns.there[c]) continue;
      Pack<T, Width> pack;
#pragma unroll
      for (int k = 0; k < Width; ++k) pack.v[k] = from_float<T>(v[c][k]);
      *reinterpret_cast<Pack<T, Width>*>(head_row + columns.begin[c]) = pack;
    }
  }
};

// out[row] = the sums of a long row's parts, in order. Pairs (parts [parts, width], out): two of them,
// such as the gradients of x and right.
template <class T>
struct PartSums {
  const float* parts;
  T* out;  // [rows, width]
  int64_t width;
};

template <class T>
__global__ void __launch_bounds__(128)
    join_parts_kernel(EdgeLists graph, PartSums<T> first, PartSums<T> second) {
  int64_t column = int64_t{blockIdx.y} * 128 + threadIdx.x;
  const bool of_first = column < first.width;
  if (!of_first) column -= first.width;
  const int64_t width = of_first ? first.width : second.width;
  if (column >= width) return;
  const float* parts = (of_first ? first.parts : second.parts) + column;
  const int end = graph.long_begin[blockIdx.x + 1];
  float sum = 0;
#pragma unroll 4
  for (int p = graph.long_begin[blockIdx.x]; p < end; ++p) sum += parts[p * width];
  T* out = of_first ? first.out : second.out;
  out[graph.long_row[blockIdx.x] * width + column] = from_float<T>(sum);
}

template <class T>
void join_parts(const EdgeLists& graph, const PartSums<T>& first, const PartSums<T>& second,
                cudaStream_t stream) {
  if (graph.long_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(graph.long_rows),
                  divide_up(first.width + second.width, 128));
  join_parts_kernel<T><<<grid, 128, 0, stream>>>(graph, first, second);
}

}  // namespace seqfuse::ops::cuda
