// A warp or, for long rows, a block reads its row twice; the second time from the first-level
// cache.
#include "ops/kernels/norm/l2_normalize.h"

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int64_t kWarpDim = 1024;  // longer rows get a block each

template <class T, int Width, int Group>
__global__ void __launch_bounds__(kThreads) forward_kernel(L2NormalizeParams params) {
  __shared__ float scratch[Group / 32];
  const int64_t row = int64_t{blockIdx.x} * (kThreads / Group) + threadIdx.x / Group;
  if (row >= params.rows) return;  // a whole warp, or no thread of the block
  const int64_t first = threadIdx.x % Group * Width, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;

  float sum[1] = {0};
  for (int64_t j = first; j < dim; j += Group * Width) {
    const auto pack = load<Width>(x, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(pack.v[k]) * to_float(pack.v[k]);
  }
  group_sum<Group>(sum, scratch);
  const float norm = sqrtf(sum[0]);
  const float scale = 1 / fmaxf(norm, static_cast<float>(params.eps));
  for (int64_t j = first; j < dim; j += Group * Width) {
    auto pack = load<Width>(x, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) pack.v[k] = from_float<T>(to_float(pack.v[k]) * scale);
    store<Width>(y, j, dim, pack);
  }
  if (first == 0) static_cast<float*>(params.norm)[row] = norm;
}

template <class T, int Width, int Group>
__global__ void __launch_bounds__(kThreads) backward_kernel(L2NormalizeBackwardParams params) {
  __shared__ float scratch[Group / 32];
  const int64_t row = int64_t{blockIdx.x} * (kThreads / Group) + threadIdx.x / Group;
  if (row >= params.rows) return;
  const int64_t first = threadIdx.x % Group * Width, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
  T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
  const float norm = static_cast<const float*>(params.norm)[row];
  const auto eps = static_cast<float>(params.eps);
  const float scale = 1 / fmaxf(norm, eps);

  float sum[1] = {0};
  for (int64_t j = first; j < dim; j += Group * Width) {
    const auto value = load<Width>(x, j, dim), gradient = load<Width>(dy, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(value.v[k]) * to_float(gradient.v[k]);
  }
  group_sum<Group>(sum, scratch);
  // Below eps the divisor is a constant, and y does not turn with x.
  const float along = norm > eps ? sum[0] * scale * scale : 0;
  for (int64_t j = first; j < dim; j += Group * Width) {
    auto value = load<Width>(x, j, dim);
    const auto gradient = load<Width>(dy, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      value.v[k] = from_float<T>((to_float(gradient.v[k]) - to_float(value.v[k]) * along) * scale);
    }
    store<Width>(dx, j, dim, value);
  }
}

unsigned blocks_of(int64_t rows, int64_t dim) {
  return divide_up(rows, dim <= kWarpDim ? kThreads / 32 : 1);
}

}  // namespace

cudaError_t l2_normalize_forward_cuda(const L2NormalizeParams& params, DType dtype,
                                      cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(dtype, {params.x, params.y}, {params.x_stride, params.y_stride},
                  [&]<class T, int Width>() {
                    const auto kernel = params.dim <= kWarpDim ? forward_kernel<T, Width, 32>
                                                               : forward_kernel<T, Width, kThreads>;
                    kernel<<<blocks_of(params.rows, params.dim), kThreads, 0, stream>>>(params);
                  });
}

cudaError_t l2_normalize_backward_cuda(const L2NormalizeBackwardParams& params, DType dtype,
                                       cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(dtype, {params.x, params.dy, params.dx},
                  {params.x_stride, params.dy_stride, params.dx_stride}, [&]<class T, int Width>() {
                    const auto kernel = params.dim <= kWarpDim
                                            ? backward_kernel<T, Width, 32>
                                            : backward_kernel<T, Width, kThreads>;
                    kernel<<<blocks_of(params.rows, params.dim), kThreads, 0, stream>>>(params);
                  });
}

}  // namespace seqfuse::ops
