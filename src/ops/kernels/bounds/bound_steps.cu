#include <algorithm>

#include "ops/kernels/bounds/bound_steps.h"

namespace seqfuse::ops::bounds {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

template <class Step>
__global__ void bound_step_kernel(Step step, int64_t elements) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    step(i);
  }
}

// A warp for each row.
template <class T>
__global__ void softmax_bounds_kernel(SoftmaxParams<T> params) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= params.rows) return;
  const int lane = threadIdx.x % kWarp;
  const T *x_lo = params.x_lo + row * params.keys, *x_hi = params.x_hi + row * params.keys;
  T top = x_hi[0];
  for (int64_t j = lane; j < params.keys; j += kWarp) top = larger(top, x_hi[j]);
  for (int step = kWarp / 2; step > 0; step /= 2) {
    top = larger(top, __shfl_xor_sync(kAllLanes, top, step));
  }
  T sum_least = 0, sum_most = 0;
  for (int64_t j = lane; j < params.keys; j += kWarp) {
    sum_least += softmax_power(x_lo[j], top, T(-1));
    sum_most += softmax_power(x_hi[j], top, T(1)) + Arithmetic<T>::tiny;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    sum_least += __shfl_xor_sync(kAllLanes, sum_least, step);
    sum_most += __shfl_xor_sync(kAllLanes, sum_most, step);
  }
  for (int64_t j = lane; j < params.keys; j += kWarp) {
    const T least = softmax_power(x_lo[j], top, T(-1));
    const T most = softmax_power(x_hi[j], top, T(1)) + Arithmetic<T>::tiny;
    const Range<T> y = softmax_value(least, most, sum_least, sum_most, params.more);
    params.lo[row * params.keys + j] = y.lo;
    params.hi[row * params.keys + j] = y.hi;
  }
}

// A block has 32 elements; its 8 warps share their rows.
constexpr int kSlices = 8;
template <Pencil kind, class T>
__global__ void __launch_bounds__(kWarp* kSlices) pencil_kernel(PencilParams<T> params) {
  __shared__ T parts[2][kSlices][kWarp];
  const int lane = threadIdx.x, slice = threadIdx.y;
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kWarp + lane, batch = blockIdx.y;
  const bool is_element = e < params.elements;
  PencilElement<T> element{};
  if (is_element) element = pencil_element<kind>(params, batch, e);
  const int64_t width = params.coordinates / params.positions;
  T down = 0, up = 0;  // of the first slice
  for (int64_t position = 0; position < params.positions; ++position) {
    T low = 0, high = 0;
    if (is_element) {
      const int64_t end = (position + 1) * width;
#pragma unroll 4
      for (int64_t k = position * width + slice; k < end; k += kSlices) {
        const PencilRow<T> row = pencil_row<kind>(params, element, batch, k, e);
        if constexpr (kind != Pencil::given) store_row(params, row, batch, k, e);
        low = norm_with(params.norm, low, row.mid - row.rad);
        high = norm_with(params.norm, high, row.mid + row.rad);
      }
    }
    parts[0][slice][lane] = low;
    parts[1][slice][lane] = high;
    __syncthreads();
    if (slice == 0) {
      for (int other = 1; other < kSlices; ++other) {
        low = norm_joined(params.norm, low, parts[0][other][lane]);
        high = norm_joined(params.norm, high, parts[1][other][lane]);
      }
      down += norm_ended(params, low);
      up += norm_ended(params, high);
    }
    __syncthreads();
  }
  if (slice != 0 || !is_element) return;
  PencilRow<T> last = pencil_row<kind>(params, element, batch, params.coordinates, e);
  last.mid += element.mid;
  last.rad += element.rad;
  end_element(params, last, down, up, batch, e);
}

// A block for each chunk of a row.
template <Backward kind, class T>
__global__ void __launch_bounds__(kThreads) bound_rows_kernel(BackwardParams<T> params) {
  __shared__ double sums[2][kThreads / kWarp];
  const int64_t m = blockIdx.x, chunk = blockIdx.y, batch = blockIdx.z;
  const int64_t begin = chunk * kBackwardChunk;
  const int64_t end =
      begin + kBackwardChunk < params.elements ? begin + kBackwardChunk : params.elements;
  const int64_t of_batch = batch * params.elements;
  const int64_t of_row = (batch * params.functions + m) * params.elements;
  double value = 0, lost = 0;
  for (int64_t e = begin + threadIdx.x; e < end; e += kThreads) {
    const T row = params.rows[of_row + e];
    const RowConstant<T> constant = backward_element<kind>(params, of_batch + e, of_row + e);
    add_constant(params, constant, row, value, lost);
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
    lost += __shfl_xor_sync(kAllLanes, lost, step);
  }
  if (threadIdx.x % kWarp == 0) {
    sums[0][threadIdx.x / kWarp] = value;
    sums[1][threadIdx.x / kWarp] = lost;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    value += sums[0][warp];
    lost += sums[1][warp];
  }
  const int64_t functions = params.batch * params.functions;
  double* to = params.constants + 2 * chunk * functions + batch * params.functions + m;
  to[0] = value;
  to[functions] = lost;
}

template <Backward kind, class T>
cudaError_t launch_rows(const BackwardParams<T>& params, cudaStream_t stream) {
  const int64_t chunks = (params.elements + kBackwardChunk - 1) / kBackwardChunk;
  const dim3 grid(static_cast<unsigned>(params.functions), static_cast<unsigned>(chunks),
                  static_cast<unsigned>(params.batch));
  bound_rows_kernel<kind><<<grid, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

template <Pencil kind, class T>
cudaError_t launch_pencil(const PencilParams<T>& params, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((params.elements + kWarp - 1) / kWarp),
                  static_cast<unsigned>(params.batch));
  pencil_kernel<kind><<<grid, dim3(kWarp, kSlices), 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace

template <class Step>
cudaError_t each_element_cuda(const Step& step, int64_t elements, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = std::min((elements + kThreads - 1) / kThreads, kMostBlocks);
  bound_step_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(step, elements);
  return cudaGetLastError();
}

template <class T>
cudaError_t softmax_image_cuda(const SoftmaxParams<T>& params, cudaStream_t stream) {
  constexpr int kRows = 4;
  const auto blocks = static_cast<unsigned>((params.rows + kRows - 1) / kRows);
  softmax_bounds_kernel<<<blocks, kRows * kWarp, 0, stream>>>(params);
  return cudaGetLastError();
}

template <class T>
cudaError_t pencil_cuda(Pencil kind, const PencilParams<T>& params, cudaStream_t stream) {
  switch (kind) {
    case Pencil::given:
      return launch_pencil<Pencil::given>(params, stream);
    case Pencil::sum:
      return launch_pencil<Pencil::sum>(params, stream);
    case Pencil::function:
      return launch_pencil<Pencil::function>(params, stream);
    case Pencil::product:
      return launch_pencil<Pencil::product>(params, stream);
  }
  return cudaErrorInvalidValue;
}

template <class T>
cudaError_t backward_rows_cuda(Backward kind, const BackwardParams<T>& params,
                               cudaStream_t stream) {
  switch (kind) {
    case Backward::constants:
      return launch_rows<Backward::constants>(params, stream);
    case Backward::function:
      return launch_rows<Backward::function>(params, stream);
    case Backward::product:
      return launch_rows<Backward::product>(params, stream);
  }
  return cudaErrorInvalidValue;
}

#define SEQFUSE_STEP(...) \
  template cudaError_t each_element_cuda(const __VA_ARGS__&, int64_t, cudaStream_t);
#define SEQFUSE_BOUNDS_OF(T)                                                      \
  SEQFUSE_EACH_BOUND_STEP(SEQFUSE_STEP, T)                                        \
  template cudaError_t softmax_image_cuda(const SoftmaxParams<T>&, cudaStream_t); \
  template cudaError_t pencil_cuda(Pencil, const PencilParams<T>&, cudaStream_t); \
  template cudaError_t backward_rows_cuda(Backward, const BackwardParams<T>&, cudaStream_t);
SEQFUSE_BOUNDS_OF(double)
SEQFUSE_BOUNDS_OF(float)
#undef SEQFUSE_BOUNDS_OF
#undef SEQFUSE_STEP

}  // namespace seqfuse::ops::bounds
