// Forward: one block per row of a sequence. Backward: one block per sequence. Its threads walk
// along diagonals: a diagonal has one distance, so its sum stays in a register, and neighbouring
// threads read neighbouring elements. Each thread has its own histogram of time buckets in its own
// bank of shared memory, so nothing is atomic.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "ops/kernels/attention/common/time_buckets.h"
#include "ops/kernels/attention/relative_bias.h"
#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops {
namespace {

constexpr int kForwardThreads = 128;
constexpr int kBackwardThreads = 256;  // halved if shared memory is short
constexpr int kMaxBuckets = attention::kBuckets;

__device__ int bucket_of(int64_t difference, int num_buckets) {
  const double x = fmax(fabs(static_cast<double>(difference)), 1.0);
  return min(attention::time_bucket(x), num_buckets - 1);
}

// The time after event i, from which its keys' ages are measured.
__device__ int64_t time_after(const RelativeBiasParams& p, int64_t b, int64_t begin, int64_t i,
                              int64_t length) {
  if (i + 1 < length) return p.timestamps[begin + i + 1];
  return p.request_times ? p.request_times[b] : p.timestamps[begin + length - 1];
}

template <class T>
__global__ void __launch_bounds__(kForwardThreads) forward_kernel(RelativeBiasParams p) {
  const int64_t b = blockIdx.y, i = blockIdx.x;
  const int64_t begin = p.offsets[b], length = p.offsets[b + 1] - begin;
  T* row = static_cast<T*>(p.bias) + (b * p.max_len + i) * p.max_len;
  const float* center = p.position_bias + (p.position_bias_size - 1) / 2;
  const int64_t now = p.time_bias && i < length ? time_after(p, b, begin, i, length) : 0;
  for (int64_t j = threadIdx.x; j < p.max_len; j += kForwardThreads) {
    float value = 0;
    if (i < length && j < length) {
      if (p.position_bias) value = center[j - i];
      if (p.time_bias) {
        value += p.time_bias[bucket_of(now - p.timestamps[begin + j],
                                       static_cast<int>(p.num_time_buckets))];
      }
    }
    row[j] = static_cast<T>(value);
  }
}

template <class T>
__global__ void __launch_bounds__(kBackwardThreads) backward_kernel(RelativeBiasParams p) {
  extern __shared__ float histogram[];  // [buckets][thread]
  const int threads = static_cast<int>(blockDim.x);
  const int64_t b = blockIdx.x;
  const int64_t begin = p.offsets[b], length = p.offsets[b + 1] - begin;
  const T* gradient = static_cast<const T*>(p.bias) + b * p.max_len * p.max_len;
  float* sums = p.partials + b * (p.position_bias_size + p.num_time_buckets);
  const int buckets =
      p.time_bias ? static_cast<int>(min(p.num_time_buckets, int64_t{kMaxBuckets})) : 0;
  float* own = histogram + threadIdx.x;
  for (int bucket = 0; bucket < buckets; ++bucket) own[bucket * threads] = 0;

  // Distances that do not occur in this sequence get 0.
  const int64_t center = (p.position_bias_size - 1) / 2;
  for (int64_t e = threadIdx.x; e < p.position_bias_size; e += threads) {
    if (e <= center - length || e >= center + length) sums[e] = 0;
  }
  for (int64_t d = threadIdx.x; d < 2 * length - 1; d += threads) {
    const int64_t distance = d - (length - 1);  // j - i
    const int64_t first = max(int64_t{0}, -distance), last = min(length, length - distance);
    float sum = 0;
    for (int64_t i = first; i < last; ++i) {
      const int64_t j = i + distance;
      const float value = static_cast<float>(gradient[i * p.max_len + j]);
      if (value == 0) continue;  // masked: about half of all pairs; skips the costly logarithm
      sum += value;
      if (buckets > 0) {
        const int64_t age = time_after(p, b, begin, i, length) - p.timestamps[begin + j];
        own[bucket_of(age, static_cast<int>(p.num_time_buckets)) * threads] += value;
      }
    }
    if (p.position_bias) sums[center + distance] = sum;
  }
  __syncthreads();
  float* time_sums = sums + p.position_bias_size;
  for (int64_t bucket = threadIdx.x; bucket < p.num_time_buckets; bucket += threads) {
    float sum = 0;
    if (bucket < buckets) {
      // Each bucket starts at another thread, which avoids bank conflicts within a warp.
      for (int t = 0; t < threads; ++t) {
        sum += histogram[bucket * threads + ((t + threadIdx.x) & (threads - 1))];
      }
    }
    time_sums[bucket] = sum;
  }
}

template <class T>
cudaError_t forward(const RelativeBiasParams& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.max_len), static_cast<unsigned>(p.batch));
  forward_kernel<T><<<grid, kForwardThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template <class T>
cudaError_t backward(const RelativeBiasParams& p, cudaStream_t stream) {
  const int64_t buckets = p.time_bias ? std::min<int64_t>(p.num_time_buckets, kMaxBuckets) : 0;
  int available = 0;
  cudaError_t error = shared_bytes_of_block(available);
  if (error != cudaSuccess) return error;
  const auto bytes_of = [&](int threads) {
    return static_cast<int>(buckets * threads * int64_t{sizeof(float)});
  };
  const int threads =
      bytes_of(kBackwardThreads) <= available ? kBackwardThreads : kBackwardThreads / 2;
  error = cudaFuncSetAttribute(backward_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               bytes_of(threads));
  if (error != cudaSuccess) return error;
  backward_kernel<T><<<static_cast<unsigned>(p.batch), threads, bytes_of(threads), stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t relative_bias_forward_cuda(const RelativeBiasParams& params, DType dtype,
                                       cudaStream_t stream) {
  if (params.batch == 0 || params.max_len == 0) return cudaSuccess;
  if (dtype == DType::f32) return forward<float>(params, stream);
  if (dtype == DType::f16) return forward<__half>(params, stream);
  if (dtype == DType::bf16) return forward<__nv_bfloat16>(params, stream);
  return cudaErrorInvalidValue;
}

cudaError_t relative_bias_backward_cuda(const RelativeBiasParams& params, DType dtype,
                                        cudaStream_t stream) {
  if (params.batch == 0) return cudaSuccess;
  if (dtype == DType::f32) return backward<float>(params, stream);
  if (dtype == DType::f16) return backward<__half>(params, stream);
  if (dtype == DType::bf16) return backward<__nv_bfloat16>(params, stream);
  return cudaErrorInvalidValue;
}

}  // namespace seqfuse::ops
