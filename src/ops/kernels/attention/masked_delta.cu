// What the backward kernels of attention under a mask need of each query.
#include "ops/kernels/attention/common/exp2.cuh"
#include "ops/kernels/attention/masked_launch.cuh"
#include "ops/kernels/common/sm80/tile.cuh"

namespace seqfuse::ops::attention {
namespace {

constexpr int kDeltaThreads = 128, kDeltaRows = kDeltaThreads / 16;

// delta = <dout, out> - dlse, and shift. A query whose scores are all -infinity has weights of 0 and
// no gradient: exp(-infinity - lse) would be NaN. 16 lanes a row.
template <class T>
__global__ void masked_delta_kernel(const __grid_constant__ MaskedArguments args) {
  using ops::sm80::numbers;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 16;
  const int64_t queries = args.mask.queries;
  if (row >= args.batch * args.heads * queries) return;
  const int64_t b = row / queries / args.heads, h = row / queries % args.heads, i = row % queries;
  const int chunk = threadIdx.x % 16;
  float sum = 0;
  if (chunk * 8 < args.head_dim) {
    const auto load = [&](const BatchView& view) {
      return *reinterpret_cast<const uint4*>(view.data + b * view.batch_bytes +
                                             h * view.head_bytes + i * view.row_bytes + chunk * 16);
    };
    const uint4 out = load(args.out), dout = load(args.dout);
    const uint32_t x[4] = {out.x, out.y, out.z, out.w}, y[4] = {dout.x, dout.y, dout.z, dout.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 p = numbers<T>(x[e]), r = numbers<T>(y[e]);
      sum = fmaf(p.x, r.x, fmaf(p.y, r.y, sum));
    }
  }
  // Rows of a warp's halves end together, as head_dim and queries are the same for both.
#pragma unroll
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(__activemask(), sum, step);
  if (chunk != 0) return;
  const float lse = args.lse[row];
  args.delta[row] = lse == kNone ? 0.0f : sum - (args.dlse ? args.dlse[row] : 0.0f);
  args.shift[row] = lse == kNone ? 0.0f : lse * kLog2e;
}

}  // namespace

cudaError_t launch_masked_delta(const MaskedArguments& args, DType dtype, cudaStream_t stream) {
  const int64_t rows = args.batch * args.heads * args.mask.queries;
  if (rows == 0) return cudaSuccess;
  const auto kernel =
      dtype == DType::bf16 ? masked_delta_kernel<__nv_bfloat16> : masked_delta_kernel<__half>;
  kernel<<<static_cast<unsigned>((rows + kDeltaRows - 1) / kDeltaRows), kDeltaThreads, 0, stream>>>(
      args);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::attention
