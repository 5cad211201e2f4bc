#include "ops/kernels/attention/dense_mask.h"

namespace seqfuse::ops {
namespace {

constexpr int kThreads = 128;

// One block per row.
__global__ void __launch_bounds__(kThreads) dense_mask_kernel(DenseMaskParams p) {
  const int64_t b = blockIdx.y, i = blockIdx.x;
  const attention::RowMask row = attention::dense_row(p, b, i);
  bool* const to = p.mask + (b * p.max_len + i) * p.max_len;
  for (int j = static_cast<int>(threadIdx.x); j < p.max_len; j += kThreads) to[j] = row.sees(j);
}

}  // namespace

cudaError_t dense_mask_cuda(const DenseMaskParams& params, cudaStream_t stream) {
  if (params.batch == 0 || params.max_len == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(params.max_len), static_cast<unsigned>(params.batch));
  dense_mask_kernel<<<grid, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops
