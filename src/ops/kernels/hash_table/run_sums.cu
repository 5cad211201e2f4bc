// A warp sums a piece of the sorted positions, however long its runs of equal ids are, so that an id
// which is a tenth of the batch takes no longer than others. Runs that are whole in the piece are
// written at once; of one that goes on in the next piece, and of one that comes from the one before,
// the piece keeps a partial sum. A second kernel adds those: the warp of the piece in which a run
// begins.
#include <algorithm>

#include "ops/kernels/hash_table/run_sums.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int kRunThreads = 128;
constexpr int kColumns = 128;  // of a warp: four a lane
constexpr int kTogether = 4;   // rows on their way
constexpr unsigned kWarp = 0xFFFFFFFFu;

struct Four {
  float v[4] = {};

  __device__ void add(const Four& other) {
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] += other.v[k];
  }
};

// The columns of a lane: neighbouring ones if rows can be read as vectors, else every 32nd.
template <bool Vectors>
struct Columns {
  int64_t first, dim;

  __device__ explicit Columns(int64_t dim_) : dim(dim_) {
    const int64_t lane = threadIdx.x % 32;
    first = int64_t{blockIdx.y} * kColumns + (Vectors ? 4 * lane : lane);
  }
  __device__ Four load(const float* row) const {
    Four four;
    if constexpr (Vectors) {
      if (first < dim) {
        const float4 v = *reinterpret_cast<const float4*>(row + first);
        four = {{v.x, v.y, v.z, v.w}};
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (first + 32 * k < dim) four.v[k] = row[first + 32 * k];
      }
    }
    return four;
  }
  __device__ void store(float* row, const Four& four) const {
    if constexpr (Vectors) {
      if (first < dim) {
        *reinterpret_cast<float4*>(row + first) =
            make_float4(four.v[0], four.v[1], four.v[2], four.v[3]);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (first + 32 * k < dim) row[first + 32 * k] = four.v[k];
      }
    }
  }
};

__device__ __forceinline__ int64_t piece_of_warp() {
  return (int64_t{blockIdx.x} * kRunThreads + threadIdx.x) / 32;
}

template <bool Vectors>
__global__ void __launch_bounds__(kRunThreads) pieces_kernel(const __grid_constant__ RunSums p) {
  const int64_t piece = piece_of_warp(), begin = piece * kRunPiece;
  if (begin >= p.count) return;
  const int64_t end = min(begin + kRunPiece, p.count);
  const int lane = threadIdx.x % 32;
  const Columns<Vectors> columns(p.dim);
  float* from_before = p.partial + 2 * piece * p.dim;
  int run = p.rank[begin];
  bool is_from_before = begin > 0 && p.rank[begin - 1] == run;
  Four sum;
  for (int64_t base = begin; base < end; base += 32) {
    int64_t position = 0;
    int rank = -1;
    if (base + lane < end) {
      position = p.order[base + lane];
      rank = p.rank[base + lane];
    }
    for (int first = 0; first < 32 && base + first < end; first += kTogether) {
      Four rows[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        // Beyond the end: position 0, which is not added.
        rows[k] = columns.load(p.rows + __shfl_sync(kWarp, position, first + k) * p.dim);
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int its = __shfl_sync(kWarp, rank, first + k);
        if (its < 0) continue;
        if (its != run) {
          columns.store(is_from_before ? from_before : p.sums + run * p.dim, sum);
          run = its;
          is_from_before = false;
          sum = Four();
        }
        sum.add(rows[k]);
      }
    }
  }
  const bool goes_on = end < p.count && p.rank[end] == run;
  float* to = is_from_before ? from_before : goes_on ? from_before + p.dim : p.sums + run * p.dim;
  columns.store(to, sum);
}

// The first index from `low` on with another rank.
__device__ int64_t end_of_run(const int32_t* rank, int64_t low, int64_t count) {
  const int run = rank[low];
  int64_t high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (rank[middle] <= run) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

template <bool Vectors>
__global__ void __launch_bounds__(kRunThreads) join_kernel(const __grid_constant__ RunSums p) {
  const int64_t piece = piece_of_warp(), begin = piece * kRunPiece, end = begin + kRunPiece;
  if (end >= p.count) return;
  const int run = p.rank[end - 1];
  const bool begins_here = p.rank[begin] != run || begin == 0 || p.rank[begin - 1] != run;
  if (!begins_here || p.rank[end] != run) return;
  const Columns<Vectors> columns(p.dim);
  const int64_t last = (end_of_run(p.rank, end, p.count) - 1) / kRunPiece;
  Four sum = columns.load(p.partial + (2 * piece + 1) * p.dim);
#pragma unroll 8
  for (int64_t next = piece + 1; next <= last; ++next) {
    sum.add(columns.load(p.partial + 2 * next * p.dim));
  }
  columns.store(p.sums + run * p.dim, sum);
}

bool readable_as_vectors(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0;
}

}  // namespace

cudaError_t sum_runs_cuda(const RunSums& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  constexpr int64_t kPerBlock = kRunThreads / 32;
  const dim3 grid(static_cast<unsigned>((run_pieces(p.count) + kPerBlock - 1) / kPerBlock),
                  static_cast<unsigned>((p.dim + kColumns - 1) / kColumns));
  const auto launch = [&](auto pieces, auto join) {
    pieces<<<grid, kRunThreads, 0, stream>>>(p);
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    join<<<grid, kRunThreads, 0, stream>>>(p);
    return cudaGetLastError();
  };
  const bool vectors = p.dim % 4 == 0 && readable_as_vectors(p.rows) &&
                       readable_as_vectors(p.partial) && readable_as_vectors(p.sums);
  return vectors ? launch(pieces_kernel<true>, join_kernel<true>)
                 : launch(pieces_kernel<false>, join_kernel<false>);
}

}  // namespace seqfuse::ops::hash_table
