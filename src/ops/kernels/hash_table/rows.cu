// A row takes a group of lanes, a power of two, as its length needs.
#include "ops/kernels/hash_table/rows.h"

namespace seqfuse::ops::hash_table {
namespace {

constexpr int kRowThreads = 256;

__device__ __forceinline__ int64_t rows_of(int64_t count, const int64_t* limit) {
  return limit ? min(count, *limit) : count;
}

template <int Lanes>
__device__ __forceinline__ int64_t row_of_group() {
  return (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) / Lanes;
}

template <int Lanes>
__global__ void __launch_bounds__(kRowThreads)
    initialize_kernel(const __grid_constant__ InitializeRows p) {
  const int64_t i = row_of_group<Lanes>();
  if (i >= rows_of(p.count, p.limit) || (p.states && p.states[i] != p.state)) return;
  const int64_t slot = p.slots[i];
  if (slot < 0) return;
  float* row = p.rows.row(slot);
  const int64_t id = p.ids[i];
  for (int64_t c = threadIdx.x % Lanes; c < p.rows.width; c += Lanes) {
    row[c] = c < p.rows.dim ? initial_value(p.init, id, c) : 0.0F;
  }
}

// T: float, or float4 if rows and columns allow it.
template <int Lanes, class T>
__global__ void __launch_bounds__(kRowThreads) gather_kernel(const __grid_constant__ GatherRows p) {
  constexpr int64_t kItems = sizeof(T) / sizeof(float);
  const int64_t i = row_of_group<Lanes>();
  if (i >= p.count) return;
  const int64_t slot = p.slots[p.index ? p.index[i] : i];
  const float* row = slot < 0 ? p.missing : p.rows.row(slot);
  const T* from = reinterpret_cast<const T*>(row);
  T* to = reinterpret_cast<T*>(p.out + i * p.rows.dim);
  for (int64_t c = threadIdx.x % Lanes; c < p.rows.dim / kItems; c += Lanes) to[c] = from[c];
}

template <int Lanes, class T>
__global__ void __launch_bounds__(kRowThreads) copy_kernel(const __grid_constant__ CopyRows p) {
  constexpr int64_t kItems = sizeof(T) / sizeof(float);
  const int64_t i = row_of_group<Lanes>();
  if (i >= rows_of(p.count, p.limit) || (p.states && p.states[i] != p.state)) return;
  const int64_t from = p.from_slots ? p.from_slots[i] : i, to = p.to_slots ? p.to_slots[i] : i;
  if (from < 0 || to < 0) return;
  const T* source = reinterpret_cast<const T*>(p.from.row(from));
  T* target = reinterpret_cast<T*>(p.to.row(to));
  for (int64_t c = threadIdx.x % Lanes; c < p.to.width / kItems; c += Lanes) target[c] = source[c];
}

// The update with a step's numbers from memory, if that is where they are. For a whole block, which
// computes the powers once.
__device__ RowUpdate of_this_step(const UpdateRows& p) {
  RowUpdate u = p.update;
  if (!p.step.count) return u;
  u.learning_rate = *p.step.learning_rate;
  u.scale = *p.step.scale;
  if (u.kind != RowOptimizer::adam) return u;
  __shared__ float adam[2];
  if (threadIdx.x == 0) {
    const double t = *p.step.count;
    adam[0] = static_cast<float>(u.learning_rate / (1 - pow(u.exact_beta1, t)));
    adam[1] = static_cast<float>(1 / sqrt(1 - pow(u.exact_beta2, t)));
  }
  __syncthreads();
  u.rate = adam[0];
  u.inverse_root = adam[1];
  return u;
}

template <int Lanes>
__global__ void __launch_bounds__(kRowThreads) update_kernel(const __grid_constant__ UpdateRows p) {
  if (p.step.skip && *p.step.skip != 0) return;
  const RowUpdate u = of_this_step(p);
  const int64_t i = row_of_group<Lanes>();
  if (i >= rows_of(p.count, p.limit)) return;
  const int64_t slot = p.slots[i];
  if (slot < 0) return;
  const int lane = threadIdx.x % Lanes;
  const int64_t dim = p.rows.dim;
  float* row = p.rows.row(slot);
  const float* gradient = p.gradients + i * dim;
  if (u.kind != RowOptimizer::row_wise_adagrad) {
    for (int64_t c = lane; c < dim; c += Lanes) update_column(u, gradient[c], row, dim, c);
    return;
  }
  float squares = 0;
  for (int64_t c = lane; c < dim; c += Lanes) {
    const float g = gradient[c] * u.scale;
    squares += g * g;
  }
  const unsigned group =
      Lanes == 32 ? 0xFFFFFFFFu : ((1u << (Lanes % 32)) - 1) << (threadIdx.x % 32 / Lanes * Lanes);
  for (int step = Lanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(group, squares, step);
  const float sum = row[dim] + squares / static_cast<float>(dim);
  __syncwarp(group);  // all lanes have read the sum
  if (lane == 0) row[dim] = sum;
  const float rate = u.learning_rate / (sqrtf(sum) + u.epsilon);
  for (int64_t c = lane; c < dim; c += Lanes) row[c] -= rate * (gradient[c] * u.scale);
}

template <int Lanes>
unsigned blocks_for(int64_t rows) {
  return static_cast<unsigned>((rows * Lanes + kRowThreads - 1) / kRowThreads);
}

// launch(a constant: the lanes of a row) for rows of so many items.
template <class Launch>
cudaError_t launch_for(int64_t items, Launch&& launch) {
  if (items <= 2) {
    launch(Constant<2>{});
  } else if (items <= 8) {
    launch(Constant<8>{});
  } else {
    launch(Constant<32>{});
  }
  return cudaGetLastError();
}

bool aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % sizeof(float4) == 0;
}

// Whether rows can be read and written as float4.
bool in_vectors(const Rows& rows) {
  return rows.stride % 4 == 0 && aligned(rows.values) && aligned(rows.others);
}

}  // namespace

cudaError_t initialize_rows_cuda(const InitializeRows& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  return launch_for(p.rows.width, [&](auto lanes) {
    initialize_kernel<lanes.value><<<blocks_for<lanes.value>(p.count), kRowThreads, 0, stream>>>(p);
  });
}

cudaError_t gather_rows_cuda(const GatherRows& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  const bool vectors =
      p.rows.dim % 4 == 0 && in_vectors(p.rows) && aligned(p.missing) && aligned(p.out);
  return launch_for(vectors ? p.rows.dim / 4 : p.rows.dim, [&](auto lanes) {
    const unsigned blocks = blocks_for<lanes.value>(p.count);
    if (vectors) {
      gather_kernel<lanes.value, float4><<<blocks, kRowThreads, 0, stream>>>(p);
    } else {
      gather_kernel<lanes.value, float><<<blocks, kRowThreads, 0, stream>>>(p);
    }
  });
}

cudaError_t copy_rows_cuda(const CopyRows& p, cudaStream_t stream) {
  if (p.count == 0 || p.to.width == 0) return cudaSuccess;
  const bool vectors = p.to.width % 4 == 0 && in_vectors(p.from) && in_vectors(p.to);
  return launch_for(vectors ? p.to.width / 4 : p.to.width, [&](auto lanes) {
    const unsigned blocks = blocks_for<lanes.value>(p.count);
    if (vectors) {
      copy_kernel<lanes.value, float4><<<blocks, kRowThreads, 0, stream>>>(p);
    } else {
      copy_kernel<lanes.value, float><<<blocks, kRowThreads, 0, stream>>>(p);
    }
  });
}

cudaError_t update_rows_cuda(const UpdateRows& p, cudaStream_t stream) {
  if (p.count == 0) return cudaSuccess;
  return launch_for(p.rows.dim, [&](auto lanes) {
    update_kernel<lanes.value><<<blocks_for<lanes.value>(p.count), kRowThreads, 0, stream>>>(p);
  });
}

}  // namespace seqfuse::ops::hash_table
