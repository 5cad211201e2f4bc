#include "ops/kernels/decode/step_ends.h"

#include <climits>

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/decode/programmatic_launch.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

// A block a row.
template <class T>
__global__ void begin_step_kernel(const __grid_constant__ BeginStepParams p) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int64_t row = blockIdx.x, t = p.lengths[row], half = p.rotary_dims / 2;
  const int64_t id = p.ids[row] < 0 ? 0 : p.ids[row];
  const T* from = static_cast<const T*>(p.embedding) + id * p.hidden_size;
  T* to = static_cast<T*>(p.hidden) + row * p.hidden_size;
  for (int64_t i = threadIdx.x; i < p.hidden_size; i += blockDim.x) to[i] = from[i];
  T* angles = static_cast<T*>(p.angles) + row * 4 * half;
  for (int64_t i = threadIdx.x; i < 2 * half; i += blockDim.x) {
    const int64_t place = i < half || p.rule.true_distances ? t : p.rule.position(t);
    const double angle = static_cast<double>(place) * p.frequencies[i % half];
    T* pair = angles + i / half * 2 * half + i % half;
    pair[0] = from_float<T>(static_cast<float>(cos(angle)));
    pair[half] = from_float<T>(static_cast<float>(sin(angle)));
  }
}

constexpr int kEndThreads = 1024;

struct Best {
  float value = -INFINITY;
  int id = INT_MAX;
  int nan = INT_MAX;  // the lowest id whose logit is NaN

  __device__ void offer(float v, int i) {
    if (isnan(v)) nan = min(nan, i);
    if (v > value || (v == value && i < id)) value = v, id = i;
  }
  __device__ void across_warp() {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      const float v = __shfl_xor_sync(0xFFFFFFFF, value, mask);
      const int i = __shfl_xor_sync(0xFFFFFFFF, id, mask);
      offer(v, i);
    }
    nan = __reduce_min_sync(0xFFFFFFFF, nan);
  }
};

// A block a row.
template <class T>
__global__ void __launch_bounds__(kEndThreads)
    end_step_kernel(const __grid_constant__ EndStepParams p) {
  __shared__ Best of_warp[kEndThreads / 32];
  wait_for_previous_kernel();
  const int64_t row = blockIdx.x;
  const T* logits = static_cast<const T*>(p.logits) + row * p.vocabulary;
  Best best;
  if (p.vocabulary % 8 == 0) {
    for (int64_t i = threadIdx.x * 8; i < p.vocabulary; i += kEndThreads * 8) {
      const auto pack = *reinterpret_cast<const Pack<T, 8>*>(logits + i);
#pragma unroll
      for (int e = 0; e < 8; ++e) best.offer(to_float(pack.v[e]), static_cast<int>(i) + e);
    }
  } else {
    for (int64_t i = threadIdx.x; i < p.vocabulary; i += kEndThreads)
      best.offer(to_float(logits[i]), static_cast<int>(i));
  }
  best.across_warp();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = of_warp[threadIdx.x];
  best.across_warp();
  if (threadIdx.x > 0) return;
  const int64_t id = best.nan < INT_MAX ? marked_nan(best.nan) : best.id;
  p.ids[row] = id;
  p.lengths[row] += p.active[row];
  if (p.recent) p.recent[p.steps[row]++ % 2 * p.batch + row] = id;
}

__global__ void draw_kernel(const __grid_constant__ DrawParams p) {
  const int64_t row = threadIdx.x;
  if (row < p.batch) p.points[row] = point_of(p, row);
}

// launch.template operator()<T>() for 16-bit dtypes.
template <class Launch>
cudaError_t dispatch_16_bit(DType dtype, Launch&& launch) {
  switch (dtype) {
    case DType::f16:
      return launch.template operator()<__half>();
    case DType::bf16:
      return launch.template operator()<__nv_bfloat16>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace cuda

cudaError_t begin_step_cuda(const BeginStepParams& params, DType dtype, cudaStream_t stream) {
  return cuda::dispatch_16_bit(dtype, [&]<class T>() {
    return cuda::launch_programmatic(cuda::begin_step_kernel<T>,
                                     {.grid = dim3(static_cast<unsigned>(params.batch)),
                                      .block = dim3(256),
                                      .early = params.early},
                                     stream, params);
  });
}

cudaError_t end_step_cuda(const EndStepParams& params, DType dtype, cudaStream_t stream) {
  return cuda::dispatch_16_bit(dtype, [&]<class T>() {
    return cuda::launch_programmatic(cuda::end_step_kernel<T>,
                                     {.grid = dim3(static_cast<unsigned>(params.batch)),
                                      .block = dim3(cuda::kEndThreads),
                                      .early = params.early},
                                     stream, params);
  });
}

cudaError_t draw_cuda(const DrawParams& params, cudaStream_t stream) {
  if (params.batch > 1024) return cudaErrorInvalidValue;
  cuda::draw_kernel<<<1, static_cast<unsigned>(params.batch), 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops
