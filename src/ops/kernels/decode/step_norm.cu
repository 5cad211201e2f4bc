// A block a row. The norms' weights and the row stay in registers, up to 16 elements a thread; longer
// rows are read again.
#include "ops/kernels/decode/step_norm.h"

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/decode/programmatic_launch.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kNormThreads = 320, kNormWarps = kNormThreads / 32;
constexpr int kVectorSize = 8, kStride = kNormThreads * kVectorSize;
constexpr int kHeld = 2;  // vectors of a thread in registers

__device__ float sum_over_block(float v, float (&scratch)[kNormWarps]) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(0xFFFFFFFF, v, mask);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float part : scratch) sum += part;
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kNormThreads)
    step_norm_kernel(const __grid_constant__ StepNormParams p) {
  using Vector = Pack<T, kVectorSize>;
  __shared__ float scratch[2][kNormWarps];
  const int size = static_cast<int>(p.size), first = threadIdx.x * kVectorSize;
  const auto load = [](const void* from, int at) {
    return *reinterpret_cast<const Vector*>(static_cast<const T*>(from) + at);
  };
  Vector weight[2][kHeld], bias[2][kHeld], held[kHeld];
#pragma unroll
  for (int norm = 0; norm < 2; ++norm) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (norm < p.count && first + i * kStride < size) {
        weight[norm][i] = load(p.weight[norm], first + i * kStride);
        bias[norm][i] = load(p.bias[norm], first + i * kStride);
      }
    }
  }
  wait_for_previous_kernel();
  allow_next_kernel();

  const T* x = static_cast<const T*>(p.x) + blockIdx.x * p.size;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (first + i * kStride < size) held[i] = load(x, first + i * kStride);
  // Calls visit(vector of x, its place, number of the vector in registers or kHeld).
  const auto each = [&](auto&& visit) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (first + i * kStride < size) visit(held[i], first + i * kStride, i);
    for (int at = first + kHeld * kStride; at < size; at += kStride) visit(load(x, at), at, kHeld);
  };
  float sum = 0, squares = 0;
  each([&](const Vector& v, int, int) {
#pragma unroll
    for (const T& e : v.v) sum += to_float(e);
  });
  const float mean = sum_over_block(sum, scratch[0]) / static_cast<float>(size);
  each([&](const Vector& v, int, int) {
#pragma unroll
    for (const T& e : v.v) squares += (to_float(e) - mean) * (to_float(e) - mean);
  });
  const float variance = sum_over_block(squares, scratch[1]) / static_cast<float>(size);
  const float scale = 1 / sqrtf(variance + static_cast<float>(p.eps));
#pragma unroll
  for (int norm = 0; norm < 2; ++norm) {
    if (norm >= p.count) continue;
    T* y = static_cast<T*>(p.y[norm]) + blockIdx.x * p.size;
    each([&](const Vector& v, int at, int i) {
      const Vector w = i < kHeld ? weight[norm][i % kHeld] : load(p.weight[norm], at),
                   b = i < kHeld ? bias[norm][i % kHeld] : load(p.bias[norm], at);
      Vector result;
#pragma unroll
      for (int e = 0; e < kVectorSize; ++e)
        result.v[e] =
            from_float<T>((to_float(v.v[e]) - mean) * scale * to_float(w.v[e]) + to_float(b.v[e]));
      *reinterpret_cast<Vector*>(y + at) = result;
    });
  }
}

template <class T>
cudaError_t launch_norm(const StepNormParams& params, cudaStream_t stream) {
  return launch_programmatic(step_norm_kernel<T>,
                             {.grid = dim3(static_cast<unsigned>(params.batch)),
                              .block = dim3(kNormThreads),
                              .early = params.early},
                             stream, params);
}

}  // namespace
}  // namespace cuda

cudaError_t step_norm_cuda(const StepNormParams& params, DType dtype, cudaStream_t stream) {
  switch (dtype) {
    case DType::f16:
      return cuda::launch_norm<__half>(params, stream);
    case DType::bf16:
      return cuda::launch_norm<__nv_bfloat16>(params, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace seqfuse::ops
