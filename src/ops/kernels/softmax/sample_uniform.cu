// A thread draws the four words of one counter, which belong to samples 16 apart.
#include "ops/kernels/softmax/sample_uniform.h"

#include "base/philox.h"
#include "ops/kernels/common/row_kernels.cuh"

namespace seqfuse::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) sample_kernel(SampleUniformParams params) {
  const int64_t counter = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Philox philox{params.seed.get(), kSampleStream};
  const auto words = philox(static_cast<uint64_t>(counter));
  const auto size = static_cast<uint32_t>(params.size);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int64_t i = counter / 16 * 64 + n * 16 + counter % 16;
    if (i < params.count)
      params.samples[i] = static_cast<int32_t>(params.pool[Philox::below(words[n], size)]);
  }
}

}  // namespace

cudaError_t sample_uniform_cuda(const SampleUniformParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const int64_t counters = (params.count + 63) / 64 * 16;
  sample_kernel<<<cuda::divide_up(counters, kThreads), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops
