// One block per row: it masks seen columns, reads the row twice, and writes it once if the
// derivative is wanted.
#include "ops/kernels/softmax/full_softmax.h"

#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 512;

// Merges two partial sums of exp((product - highest) / temperature).
__device__ void combine(float& highest, float& sum, float other_highest, float other_sum,
                        float inverse_temperature) {
  const float both = fmaxf(highest, other_highest);
  sum = sum * expf((highest - both) * inverse_temperature) +
        other_sum * expf((other_highest - both) * inverse_temperature);
  highest = both;
}

__global__ void __launch_bounds__(kThreads) softmax_kernel(FullSoftmaxParams params) {
  __shared__ float highests[kThreads / 32], sums[kThreads / 32];
  const int64_t i = blockIdx.x, columns = params.columns, target = params.targets[i];
  float* row = static_cast<float*>(params.products) + i * columns;
  const auto inverse_temperature = static_cast<float>(1 / params.temperature);

  if (params.seen) {
    for (int64_t k = params.seen_begin[i] + threadIdx.x; k < params.seen_end + i; k += kThreads) {
      const int64_t column = params.seen[k];
      if (column >= 0 && column != target) row[column] = -INFINITY;
    }
    __syncthreads();
  }

  // Leave the target out of the sum: 1 - p stays exact when p is near 1.
  const float positive = row[target];
  float highest = positive, others = 0;
  for (int64_t j = threadIdx.x; j < columns; j += kThreads) {
    if (j == target) continue;
    const float value = row[j];
    if (value > highest) {
      others *= expf((highest - value) * inverse_temperature);
      highest = value;
    }
    others += expf((value - highest) * inverse_temperature);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    combine(highest, others, __shfl_xor_sync(0xFFFFFFFF, highest, mask),
            __shfl_xor_sync(0xFFFFFFFF, others, mask), inverse_temperature);
  }
  if (threadIdx.x % 32 == 0) {
    highests[threadIdx.x / 32] = highest;
    sums[threadIdx.x / 32] = others;
  }
  __syncthreads();  // also: every thread has read row[target]
  highest = highests[0];
  others = sums[0];
  for (int w = 1; w < kThreads / 32; ++w)
    combine(highest, others, highests[w], sums[w], inverse_temperature);

  const float below = (positive - highest) * inverse_temperature;
  const float total = others + expf(below);
  if (params.losses && threadIdx.x == 0)
    static_cast<float*>(params.losses)[i] = logf(total) - below;
  if (!params.weights) return;
  const float scale = static_cast<const float*>(params.weights)[i] * inverse_temperature / total;
  for (int64_t j = threadIdx.x; j < columns; j += kThreads) {
    row[j] = j == target ? -others * scale : expf((row[j] - highest) * inverse_temperature) * scale;
  }
}

}  // namespace

cudaError_t full_softmax_cuda(const FullSoftmaxParams& params, DType dtype, cudaStream_t stream) {
  if (dtype != DType::f32) return cudaErrorInvalidValue;
  if (params.rows == 0) return cudaSuccess;
  softmax_kernel<<<static_cast<unsigned>(params.rows), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops
