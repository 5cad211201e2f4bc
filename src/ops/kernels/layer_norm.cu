// A row is read once: a group of 32, 128 or 512 threads keeps it in registers, 16 elements a
// thread, in 16-byte loads where pointers and strides allow them. Rows of more than 8192 elements
// are read again from the second-level cache instead.
//
// The backward pass gives every block a fixed set of rows. It sums its part of dweight and dbias in
// registers and writes it to the workspace; a second kernel adds the parts in order, without
// atomics.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/kernels/layer_norm.h"

namespace seqfuse::ops {
namespace {

constexpr int kItems = 16;  // elements of a row that a thread keeps
constexpr int64_t kMaxDim = 512 * kItems;
constexpr int64_t kStreamPartials = 64;  // parts of dweight and dbias for longer rows

__device__ float to_float(float v) {
  return v;
}
__device__ float to_float(__half v) {
  return __half2float(v);
}
__device__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

template <class T>
__device__ T from_float(float v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else {
    return __float2bfloat16_rn(v);
  }
}

// Width adjacent elements, moved by one instruction.
template <class T, int Width>
struct alignas(Width * sizeof(T)) Pack {
  T v[Width];
};

// Elements j to j + Width of a row of dim; those beyond its end are otherwise.
template <int Width, class T>
__device__ Pack<T, Width> load(const T* row, int64_t j, int64_t dim, float otherwise = 0) {
  if (j + Width <= dim) return *reinterpret_cast<const Pack<T, Width>*>(row + j);
  Pack<T, Width> pack;
#pragma unroll
  for (int k = 0; k < Width; ++k) pack.v[k] = j + k < dim ? row[j + k] : from_float<T>(otherwise);
  return pack;
}

// The same of a row that may be absent, which then is otherwise all over.
template <int Width, class T>
__device__ Pack<T, Width> load_or(const T* row, int64_t j, int64_t dim, float otherwise) {
  return load<Width>(row, j, row ? dim : 0, otherwise);
}

template <int Width, class T>
__device__ void store(T* row, int64_t j, int64_t dim, const Pack<T, Width>& pack) {
  if (j + Width <= dim) {
    *reinterpret_cast<Pack<T, Width>*>(row + j) = pack;
  } else {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      if (j + k < dim) row[j + k] = pack.v[k];
    }
  }
}

// v = the sums of v over the group, the same bits in each of its threads. scratch: [N * Group / 32]
// shared floats where Group is more than a warp; it is then the whole block.
template <int Group, int N>
__device__ void group_sum(float (&v)[N], float* scratch) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v[n] += __shfl_xor_sync(0xFFFFFFFF, v[n], mask);
  }
  if constexpr (Group > 32) {
    constexpr int kWarps = Group / 32;
    __syncthreads();  // the sums before this one have been read
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int n = 0; n < N; ++n) scratch[n * kWarps + threadIdx.x / 32] = v[n];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; ++n) {
      v[n] = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v[n] += scratch[n * kWarps + w];
    }
  }
}

template <int Group>
constexpr int kRows = Group == 32 ? 4 : 1;  // rows that a block works on at a time

template <int Group>
constexpr int kThreads = Group * kRows<Group>;

template <class T, int Width, int Group>
__global__ void __launch_bounds__(kThreads<Group>) forward_kernel(LayerNormParams params) {
  constexpr int kPacks = kItems / Width;
  __shared__ float scratch[Group / 32];
  const int64_t row = int64_t{blockIdx.x} * kRows<Group> + threadIdx.x / Group, dim = params.dim;
  if (row >= params.rows) return;  // a whole warp, or no thread of the block
  const int lane = threadIdx.x % Group;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;

  Pack<T, Width> values[kPacks];
  float sum[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    values[p] = load<Width>(x, (p * Group + lane) * Width, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(values[p].v[k]);
  }
  group_sum<Group>(sum, scratch);
  const float mean = sum[0] / static_cast<float>(dim);

  float squares[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const float d = to_float(values[p].v[k]) - mean;
      if ((p * Group + lane) * Width + k < dim) squares[0] += d * d;
    }
  }
  group_sum<Group>(squares, scratch);
  const float rstd =
      1 / sqrtf(squares[0] / static_cast<float>(dim) + static_cast<float>(params.eps));

#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int j = (p * Group + lane) * Width;
    if (j >= dim) break;
    const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
    const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      const float n = (to_float(values[p].v[k]) - mean) * rstd;
      values[p].v[k] = from_float<T>(n * to_float(w.v[k]) + to_float(b.v[k]));
    }
    store<Width>(y, j, dim, values[p]);
  }
  if (lane == 0) {
    static_cast<float*>(params.mean)[row] = mean;
    static_cast<float*>(params.rstd)[row] = rstd;
  }
}

// Rows of any length: a block reads its row three times.
template <class T, int Width>
__global__ void __launch_bounds__(512) forward_stream_kernel(LayerNormParams params) {
  constexpr int kGroup = 512;
  __shared__ float scratch[kGroup / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;
  const auto for_each_pack = [&](auto&& visit) {
    for (int64_t j = threadIdx.x * Width; j < dim; j += kGroup * Width)
      visit(j, load<Width>(x, j, dim));
  };

  float sum[1] = {0};
  for_each_pack([&](int64_t, const Pack<T, Width>& pack) {
    for (int k = 0; k < Width; ++k) sum[0] += to_float(pack.v[k]);
  });
  group_sum<kGroup>(sum, scratch);
  const float mean = sum[0] / static_cast<float>(dim);

  float squares[1] = {0};
  for_each_pack([&](int64_t j, const Pack<T, Width>& pack) {
    for (int k = 0; k < Width; ++k) {
      const float d = to_float(pack.v[k]) - mean;
      if (j + k < dim) squares[0] += d * d;
    }
  });
  group_sum<kGroup>(squares, scratch);
  const float rstd =
      1 / sqrtf(squares[0] / static_cast<float>(dim) + static_cast<float>(params.eps));

  for_each_pack([&](int64_t j, Pack<T, Width> pack) {
    const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
    const auto b = load_or<Width>(static_cast<const T*>(params.bias), j, dim, 0);
    for (int k = 0; k < Width; ++k) {
      const float n = (to_float(pack.v[k]) - mean) * rstd;
      pack.v[k] = from_float<T>(n * to_float(w.v[k]) + to_float(b.v[k]));
    }
    store<Width>(y, j, dim, pack);
  });
  if (threadIdx.x == 0) {
    static_cast<float*>(params.mean)[row] = mean;
    static_cast<float*>(params.rstd)[row] = rstd;
  }
}

// Affine: with the block's part of dweight and dbias, workspace[blockIdx.x].
template <class T, int Width, int Group, bool Affine>
__global__ void __launch_bounds__(kThreads<Group>, 512 / kThreads<Group>)
    backward_kernel(LayerNormBackwardParams params) {
  constexpr int kPacks = kItems / Width;
  __shared__ float scratch[2 * Group / 32];
  const int64_t dim = params.dim;
  const int lane = threadIdx.x % Group, group = threadIdx.x / Group;
  const T* weight = static_cast<const T*>(params.weight);
  float dweight[kItems] = {}, dbias[kItems] = {};

  for (int64_t row = int64_t{blockIdx.x} * kRows<Group> + group; row < params.rows;
       row += int64_t{gridDim.x} * kRows<Group>) {
    const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
    const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
    T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
    const float mean = static_cast<const float*>(params.mean)[row];
    const float rstd = static_cast<const float*>(params.rstd)[row];

    Pack<T, Width> values[kPacks], gradients[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      values[p] = load<Width>(x, (p * Group + lane) * Width, dim);
      gradients[p] = load<Width>(dy, (p * Group + lane) * Width, dim);
    }
    float sums[2] = {0, 0};  // of g and of g n; dy is 0 beyond the end of the row
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const auto w = load_or<Width>(weight, (p * Group + lane) * Width, dim, 1);
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const float n = (to_float(values[p].v[k]) - mean) * rstd, d = to_float(gradients[p].v[k]);
        const float g = d * to_float(w.v[k]);
        sums[0] += g;
        sums[1] += g * n;
        if constexpr (Affine) {
          dweight[p * Width + k] += d * n;
          dbias[p * Width + k] += d;
        }
      }
    }
    group_sum<Group>(sums, scratch);
    const float mean_g = sums[0] / static_cast<float>(dim),
                mean_gn = sums[1] / static_cast<float>(dim);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = (p * Group + lane) * Width;
      if (j >= dim) break;
      const auto w = load_or<Width>(weight, j, dim, 1);
#pragma unroll
      for (int k = 0; k < Width; ++k) {
        const float n = (to_float(values[p].v[k]) - mean) * rstd;
        const float g = to_float(gradients[p].v[k]) * to_float(w.v[k]);
        values[p].v[k] = from_float<T>(rstd * (g - mean_g - n * mean_gn));
      }
      store<Width>(dx, j, dim, values[p]);
    }
  }

  if constexpr (Affine) {
    // The groups of the block add their sums in order.
    __shared__ float totals[2][kRows<Group> == 1 ? 1 : Group * kItems];
    float* part = params.workspace + int64_t{blockIdx.x} * 2 * dim;
    for (int turn = 0; turn < kRows<Group>; ++turn) {
      if (turn == group) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          const int j = (i / Width * Group + lane) * Width + i % Width;
          if (j >= dim) continue;
          float w = dweight[i], b = dbias[i];
          if constexpr (kRows<Group> > 1) {
            if (turn > 0) {
              w += totals[0][j];
              b += totals[1][j];
            }
            totals[0][j] = w;
            totals[1][j] = b;
          }
          if (turn == kRows<Group> - 1) {
            part[j] = w;
            part[dim + j] = b;
          }
        }
      }
      __syncthreads();
    }
  }
}

// dx of rows of any length: a block reads its row twice.
template <class T, int Width>
__global__ void __launch_bounds__(512) backward_stream_kernel(LayerNormBackwardParams params) {
  constexpr int kGroup = 512;
  __shared__ float scratch[2 * kGroup / 32];
  const int64_t row = blockIdx.x, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
  T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
  const float mean = static_cast<const float*>(params.mean)[row];
  const float rstd = static_cast<const float*>(params.rstd)[row];
  const auto for_each_pack = [&](auto&& visit) {
    for (int64_t j = threadIdx.x * Width; j < dim; j += kGroup * Width) {
      float n[Width], g[Width];
      const auto values = load<Width>(x, j, dim), gradients = load<Width>(dy, j, dim);
      const auto w = load_or<Width>(static_cast<const T*>(params.weight), j, dim, 1);
      for (int k = 0; k < Width; ++k) {
        n[k] = (to_float(values.v[k]) - mean) * rstd;
        g[k] = to_float(gradients.v[k]) * to_float(w.v[k]);
      }
      visit(j, n, g);
    }
  };

  float sums[2] = {0, 0};
  for_each_pack([&](int64_t, const float* n, const float* g) {
    for (int k = 0; k < Width; ++k) {
      sums[0] += g[k];
      sums[1] += g[k] * n[k];
    }
  });
  group_sum<kGroup>(sums, scratch);
  const float mean_g = sums[0] / static_cast<float>(dim),
              mean_gn = sums[1] / static_cast<float>(dim);
  for_each_pack([&](int64_t j, const float* n, const float* g) {
    Pack<T, Width> out;
    for (int k = 0; k < Width; ++k)
      out.v[k] = from_float<T>(rstd * (g[k] - mean_g - n[k] * mean_gn));
    store<Width>(dx, j, dim, out);
  });
}

// The parts of dweight and dbias for rows of any length: a thread owns a column, blockIdx.y a part.
// Runs before dx, which may overwrite dy.
template <class T>
__global__ void column_parts_kernel(LayerNormBackwardParams params) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= params.dim) return;
  float dweight = 0, dbias = 0;
  for (int64_t row = blockIdx.y; row < params.rows; row += gridDim.y) {
    const float x = to_float(static_cast<const T*>(params.x)[row * params.x_stride + column]);
    const float dy = to_float(static_cast<const T*>(params.dy)[row * params.dy_stride + column]);
    const float mean = static_cast<const float*>(params.mean)[row];
    dweight += dy * ((x - mean) * static_cast<const float*>(params.rstd)[row]);
    dbias += dy;
  }
  float* part = params.workspace + int64_t{blockIdx.y} * 2 * params.dim;
  part[column] = dweight;
  part[params.dim + column] = dbias;
}

// dweight and dbias from parts [count, 2, dim]. Thread (x, y) adds every 16th part of one column.
constexpr int kColumns = 32, kLanes = 16;
template <class T>
__global__ void __launch_bounds__(kColumns* kLanes)
    add_parts_kernel(const float* parts, int64_t count, int64_t dim, T* dweight, T* dbias) {
  __shared__ float sums[kLanes][kColumns];
  const int64_t column = int64_t{blockIdx.x} * kColumns + threadIdx.x;
  float sum = 0;
  if (column < 2 * dim) {
    for (int64_t p = threadIdx.y; p < count; p += kLanes) sum += parts[p * 2 * dim + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= 2 * dim) return;
  for (int lane = 1; lane < kLanes; ++lane) sum += sums[lane][threadIdx.x];
  (column < dim ? dweight : dbias - dim)[column] = from_float<T>(sum);
}

// launch.template operator()<Group>() for the smallest group that can keep a row.
template <class Launch>
void with_group(int64_t dim, Launch&& launch) {
  if (dim <= 32 * kItems) {
    launch.template operator()<32>();
  } else if (dim <= 128 * kItems) {
    launch.template operator()<128>();
  } else {
    launch.template operator()<512>();
  }
}

unsigned divide_up(int64_t n, int64_t d) {
  return static_cast<unsigned>((n + d - 1) / d);
}

template <class T, int Width>
void launch_forward(const LayerNormParams& params, cudaStream_t stream) {
  if (params.dim > kMaxDim) {
    forward_stream_kernel<T, Width><<<static_cast<unsigned>(params.rows), 512, 0, stream>>>(params);
    return;
  }
  with_group(params.dim, [&]<int Group>() {
    const unsigned blocks = divide_up(params.rows, kRows<Group>);
    forward_kernel<T, Width, Group><<<blocks, kThreads<Group>, 0, stream>>>(params);
  });
}

template <class T, int Width>
void launch_backward(const LayerNormBackwardParams& params, cudaStream_t stream) {
  const int64_t parts = layer_norm_backward_partials(params.rows, params.dim);
  if (params.rows > 0 && params.dim > kMaxDim) {
    if (params.dweight) {
      const dim3 grid(divide_up(params.dim, 128), static_cast<unsigned>(parts));
      column_parts_kernel<T><<<grid, 128, 0, stream>>>(params);
    }
    backward_stream_kernel<T, Width>
        <<<static_cast<unsigned>(params.rows), 512, 0, stream>>>(params);
  } else if (params.rows > 0) {
    with_group(params.dim, [&]<int Group>() {
      const auto kernel = params.dweight ? backward_kernel<T, Width, Group, true>
                                         : backward_kernel<T, Width, Group, false>;
      kernel<<<static_cast<unsigned>(parts), kThreads<Group>, 0, stream>>>(params);
    });
  }
  if (params.dweight) {
    add_parts_kernel<T><<<divide_up(2 * params.dim, kColumns), dim3(kColumns, kLanes), 0, stream>>>(
        params.workspace, parts, params.dim, static_cast<T*>(params.dweight),
        static_cast<T*>(params.dbias));
  }
}

// launch.template operator()<T, Width>() with the widest loads that fit all pointers and strides.
template <class Launch>
cudaError_t dispatch(DType dtype, std::initializer_list<const void*> pointers,
                     std::initializer_list<int64_t> strides, Launch&& launch) {
  const int64_t width = 16 / size_of(dtype);
  const bool wide =
      std::ranges::all_of(pointers,
                          [](auto p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }) &&
      std::ranges::all_of(strides, [&](auto stride) { return stride % width == 0; });
  switch (dtype) {
    case DType::f32:
      wide ? launch.template operator()<float, 4>() : launch.template operator()<float, 1>();
      break;
    case DType::f16:
      wide ? launch.template operator()<__half, 8>() : launch.template operator()<__half, 1>();
      break;
    case DType::bf16:
      wide ? launch.template operator()<__nv_bfloat16, 8>()
           : launch.template operator()<__nv_bfloat16, 1>();
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

int64_t layer_norm_backward_partials(int64_t rows, int64_t dim) {
  if (dim > kMaxDim) return std::min(rows, kStreamPartials);
  int device = 0, multiprocessors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  int64_t parts = 0;
  with_group(dim, [&]<int Group>() {  // as many blocks as run at a time
    parts =
        std::min<int64_t>(divide_up(rows, kRows<Group>), multiprocessors * (512 / kThreads<Group>));
  });
  return parts;
}

cudaError_t layer_norm_forward_cuda(const LayerNormParams& params, DType dtype,
                                    cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(dtype, {params.x, params.weight, params.bias, params.y},
                  {params.x_stride, params.y_stride},
                  [&]<class T, int Width>() { launch_forward<T, Width>(params, stream); });
}

cudaError_t layer_norm_backward_cuda(const LayerNormBackwardParams& params, DType dtype,
                                     cudaStream_t stream) {
  return dispatch(dtype, {params.x, params.weight, params.dy, params.dx},
                  {params.x_stride, params.dy_stride, params.dx_stride},
                  [&]<class T, int Width>() { launch_backward<T, Width>(params, stream); });
}

}  // namespace seqfuse::ops
