// A warp reads its row twice, the second time from L1.
#include "ops/kernels/norm/l2_normalize.h"

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;  // rows per block

template <class T, int Width>
__global__ void __launch_bounds__(kThreads) forward_kernel(L2NormalizeParams params) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= params.rows) return;  // the whole warp
  const int64_t first = threadIdx.x % 32 * Width, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  T* y = static_cast<T*>(params.y) + row * params.y_stride;

  float sum[1] = {0};
  for (int64_t j = first; j < dim; j += 32 * Width) {
    const auto pack = load<Width>(x, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(pack.v[k]) * to_float(pack.v[k]);
  }
  group_sum<32>(sum, nullptr);
  const float norm = sqrtf(sum[0]);
  const float scale = 1 / fmaxf(norm, static_cast<float>(params.eps));
  for (int64_t j = first; j < dim; j += 32 * Width) {
    auto pack = load<Width>(x, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) pack.v[k] = from_float<T>(to_float(pack.v[k]) * scale);
    store<Width>(y, j, dim, pack);
  }
  if (first == 0) static_cast<float*>(params.norm)[row] = norm;
}

template <class T, int Width>
__global__ void __launch_bounds__(kThreads) backward_kernel(L2NormalizeBackwardParams params) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= params.rows) return;
  const int64_t first = threadIdx.x % 32 * Width, dim = params.dim;
  const T* x = static_cast<const T*>(params.x) + row * params.x_stride;
  const T* dy = static_cast<const T*>(params.dy) + row * params.dy_stride;
  T* dx = static_cast<T*>(params.dx) + row * params.dx_stride;
  const float norm = static_cast<const float*>(params.norm)[row];
  const auto eps = static_cast<float>(params.eps);
  const float scale = 1 / fmaxf(norm, eps);

  float sum[1] = {0};
  for (int64_t j = first; j < dim; j += 32 * Width) {
    const auto value = load<Width>(x, j, dim), gradient = load<Width>(dy, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) sum[0] += to_float(value.v[k]) * to_float(gradient.v[k]);
  }
  group_sum<32>(sum, nullptr);
  // Below eps the divisor is constant, so the projection term vanishes.
  const float along = norm > eps ? sum[0] * scale * scale : 0;
  for (int64_t j = first; j < dim; j += 32 * Width) {
    auto value = load<Width>(x, j, dim);
    const auto gradient = load<Width>(dy, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k) {
      value.v[k] = from_float<T>((to_float(gradient.v[k]) - to_float(value.v[k]) * along) * scale);
    }
    store<Width>(dx, j, dim, value);
  }
}

}  // namespace

cudaError_t l2_normalize_forward_cuda(const L2NormalizeParams& params, DType dtype,
                                      cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(
      dtype, {params.x, params.y}, {params.x_stride, params.y_stride}, [&]<class T, int Width>() {
        forward_kernel<T, Width><<<divide_up(params.rows, kWarps), kThreads, 0, stream>>>(params);
      });
}

cudaError_t l2_normalize_backward_cuda(const L2NormalizeBackwardParams& params, DType dtype,
                                       cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return dispatch(dtype, {params.x, params.dy, params.dx},
                  {params.x_stride, params.dy_stride, params.dx_stride}, [&]<class T, int Width>() {
                    backward_kernel<T, Width>
                        <<<divide_up(params.rows, kWarps), kThreads, 0, stream>>>(params);
                  });
}

}  // namespace seqfuse::ops
