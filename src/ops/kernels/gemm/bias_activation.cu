// A thread takes one piece of 16 bytes, whose columns are those of every piece at that place in a row.
// GELU takes a polynomial and one fast exponential instead of erff: with erff the kernel would compute
// longer than it moves memory.
#include "ops/kernels/gemm/bias_activation.h"

#include "ops/kernels/common/gelu.h"
#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace cuda {
namespace {

constexpr int kActivationThreads = 256;

template <Activation kActivation>
__device__ float activation_of(float v) {
  if constexpr (kActivation == Activation::gelu_erf) {
    const float magnitude = fabsf(v);
    const float u = magnitude > kLargestGeluTail ? kLargestGeluTail : magnitude;  // keeps NaN
    const float tail = __expf(-gelu_tail_exponent(u));
    return v * (v < 0 ? tail : 1 - tail);
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    // Division by infinity, for a large negative argument, gives 0. At -infinity v / infinity is NaN.
    return v / (1 + __expf(-gelu_tanh_argument(v)));
  } else {
    return v < 0 ? 0 : v;
  }
}

// columns: pieces of a row; count: pieces in all, below 2^31.
template <class T, int Width, Activation kActivation>
__global__ void __launch_bounds__(kActivationThreads)
    bias_activation_kernel(const T* x, const T* __restrict__ bias, T* y, uint32_t columns,
                           uint32_t count) {
  const uint32_t piece = blockIdx.x * kActivationThreads + threadIdx.x;
  if (piece >= count) return;
  auto values = reinterpret_cast<const Pack<T, Width>*>(x)[piece];
  const auto biases = reinterpret_cast<const Pack<T, Width>*>(bias)[piece % columns];
#pragma unroll
  for (int k = 0; k < Width; ++k) {
    const float v = to_float(values.v[k]) + to_float(biases.v[k]);
    values.v[k] = from_float<T>(activation_of<kActivation>(v));
  }
  reinterpret_cast<Pack<T, Width>*>(y)[piece] = values;
}

// Rows in several launches where there are too many pieces for 32 bits.
template <class T, int Width, Activation kActivation>
void launch_bias_activation(const BiasActivationParams& params, cudaStream_t stream) {
  const int64_t columns = params.dim / Width, most = (int64_t{1} << 30) / columns;
  for (int64_t row = 0; row < params.rows; row += most) {
    const int64_t rows = params.rows - row < most ? params.rows - row : most;
    const int64_t at = row * params.dim, count = rows * columns;
    bias_activation_kernel<T, Width, kActivation>
        <<<divide_up(count, kActivationThreads), kActivationThreads, 0, stream>>>(
            static_cast<const T*>(params.x) + at, static_cast<const T*>(params.bias),
            static_cast<T*>(params.y) + at, static_cast<uint32_t>(columns),
            static_cast<uint32_t>(count));
  }
}

}  // namespace
}  // namespace cuda

cudaError_t bias_activation_cuda(const BiasActivationParams& params, DType dtype,
                                 cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  return cuda::dispatch(
      dtype, {params.x, params.bias, params.y}, {params.dim}, [&]<class T, int Width>() {
        switch (params.activation) {
          case Activation::gelu_erf:
            return cuda::launch_bias_activation<T, Width, Activation::gelu_erf>(params, stream);
          case Activation::gelu_tanh:
            return cuda::launch_bias_activation<T, Width, Activation::gelu_tanh>(params, stream);
          case Activation::relu:
            return cuda::launch_bias_activation<T, Width, Activation::relu>(params, stream);
        }
      });
}

}  // namespace seqfuse::ops
