// A warp works on 128 adjacent elements, whose words belong to 32 consecutive counters.
#include "ops/kernels/step/dropout.h"

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/step/make_dropout_mask.h"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kPerThread = 4;

// Width: 4 if x and y are aligned to 4 elements, else 1.
template <class T, int Width>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, T* y, int64_t count, DropoutMask mask) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x, chunk = thread / 32;
  const int lane = threadIdx.x % 32;
  const uint32_t bits = __shfl_sync(0xFFFFFFFF, mask.draw(chunk), lane / 8) >> lane % 8 * 4;
#pragma unroll
  for (int k = 0; k < kPerThread; k += Width) {
    const int64_t e = thread * kPerThread + k;
    if (e >= count) return;
    auto pack = load<Width>(x, e, count);
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const float factor = bits >> (k + i) & 1 ? mask.scale : 0;
      pack.v[i] = from_float<T>(to_float(pack.v[i]) * factor);
    }
    store<Width>(y, e, count, pack);
  }
}

}  // namespace

cudaError_t dropout_forward_cuda(const DropoutParams& params, DType dtype, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const unsigned blocks = divide_up(params.count, kThreads * kPerThread);
  const bool wide = all_aligned({params.x, params.y}, kPerThread * size_of(dtype));
  return dispatch_type(dtype, [&]<class T>() {
    const auto kernel = wide ? dropout_kernel<T, kPerThread> : dropout_kernel<T, 1>;
    kernel<<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(params.x),
                                            static_cast<T*>(params.y), params.count,
                                            make_dropout_mask(params.p, params.seed));
  });
}

}  // namespace seqfuse::ops
