// The launchers of the instantiations for one head_dim each, so that they compile in parallel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace seqfuse::ops::sm80 {

struct Arguments;

constexpr int kBackwardQueries = 64;  // of a tile
constexpr int kBiasGradientKeys = 64;
constexpr int kBuckets = 148;  // of time: differences of 64 bits reach bucket 147
// Rows of the tiles of a list. is_short: of shared memory (ops/kernels/common/device_limits.h).
constexpr int forward_queries(int head_dim, bool is_short) {
  return head_dim == 256 && is_short ? 64 : 128;
}
constexpr int backward_keys(int head_dim, bool is_short) {
  return (head_dim == 256 ? 64 : 128) / (head_dim >= 128 && is_short ? 2 : 1);
}
constexpr int backward_dq_queries(int head_dim, bool is_short) {
  return head_dim == 256 ? (is_short ? 32 : 64) : 128;
}
// What kernels of the backward pass multiply gradients of scores with, and divide their sums by:
// dp 2 silu'(2 h) = dp (1 + tanh h) (1 + h (1 - tanh h)) takes an operation less, where dp is at
// hand, than with silu' itself. In float16 they reach its limit a bit sooner; loss scaling adapts.
constexpr float kScoreGradientFactor = 2;

// block_bytes: the shared memory that a block may have (shared_bytes_of_block), for which lists
// have their tiles. pieces: at least the number of (tile, head) in the list, which only the device
// knows.
template <int kHeadDim>
cudaError_t launch_forward(const Arguments& args, DType dtype, int block_bytes, int64_t pieces,
                           cudaStream_t stream);
// dq alone, from a list of tiles of backward_dq_queries.
template <int kHeadDim>
cudaError_t launch_backward_queries(const Arguments& args, DType dtype, int block_bytes,
                                    int64_t pieces, cudaStream_t stream);
// dk and dv from a list of tiles of backward_keys, and dq unless args.dq_sums is null.
template <int kHeadDim>
cudaError_t launch_backward(const Arguments& args, DType dtype, int block_bytes, int64_t pieces,
                            cudaStream_t stream);
// args.bias_sums, from a list of tiles of kBiasGradientKeys; pieces: tiles.
template <int kHeadDim>
cudaError_t launch_bias_gradient(const Arguments& args, DType dtype, int block_bytes,
                                 int64_t pieces, cudaStream_t stream);

}  // namespace seqfuse::ops::sm80
