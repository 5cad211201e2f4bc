#include "ops/kernels/jagged/encoding.h"

#include "ops/kernels/common/row_kernels.cuh"
#include "ops/kernels/jagged/time_row.h"

namespace seqfuse::ops {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// One thread per token. Tokens past the last sequence get row 0.
__global__ void __launch_bounds__(kThreads) position_index_kernel(PositionIndexParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.tokens) return;
  const int64_t b = sequence_of(i, params.batch, [&](int64_t s) { return params.offsets[s]; });
  int64_t index = 0;
  if (b < params.batch) {
    const int64_t first = params.offsets[b], length = params.offsets[b + 1] - first;
    const int64_t targets = params.num_targets ? params.num_targets[b] : 0;
    const int64_t high = min(length - targets, params.table_rows - 1);
    index = max(min(i - first, high), int64_t{0});
  }
  params.index[i] = index;
}

__global__ void __launch_bounds__(kThreads) time_index_kernel(TimeIndexParams params) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.tokens) return;
  const int64_t b = sequence_of(i, params.batch, [&](int64_t s) { return params.offsets[s]; });
  int64_t index = 0;
  if (b < params.batch) {
    index = time_row(params.timestamps[params.offsets[b + 1] - 1], params.timestamps[i],
                     params.unit, params.table_rows);
  }
  params.index[i] = index;
}

// blockDim: (threads of a row, rows).
template <class T, int Width>
__global__ void __launch_bounds__(kThreads) forward_kernel(EncodingParams params) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.y + threadIdx.y, dim = params.dim;
  if (i >= params.tokens) return;
  const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
  const T* row = static_cast<const T*>(params.table) + params.index[i] * params.table_stride;
  T* y = static_cast<T*>(params.y) + i * params.y_stride;
  const auto scale = static_cast<float>(params.scale);
  for (int64_t j = threadIdx.x * Width; j < dim; j += blockDim.x * Width) {
    auto pack = load<Width>(x, j, dim);
    const auto add = load<Width>(row, j, dim);
#pragma unroll
    for (int k = 0; k < Width; ++k)
      pack.v[k] = from_float<T>(scale * to_float(pack.v[k]) + to_float(add.v[k]));
    store<Width>(y, j, dim, pack);
  }
}

}  // namespace

cudaError_t position_index_cuda(const PositionIndexParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  position_index_kernel<<<divide_up(params.tokens, kThreads), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t time_index_cuda(const TimeIndexParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  time_index_kernel<<<divide_up(params.tokens, kThreads), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t encoding_forward_cuda(const EncodingParams& params, DType dtype, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  return dispatch(
      dtype, {params.x, params.table, params.y},
      {params.x_stride, params.table_stride, params.y_stride}, [&]<class T, int Width>() {
        const dim3 block = row_block(divide_up(params.dim, Width), kThreads);
        forward_kernel<T, Width><<<divide_up(params.tokens, block.y), block, 0, stream>>>(params);
      });
}

}  // namespace seqfuse::ops
