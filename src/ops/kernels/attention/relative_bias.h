// The relative bias of HSTU attention as a dense matrix, for attention by matrix products.
//
//   bias[b, i, j] = position_bias[(N - 1) + j - i] + time_bias[bucket(t_{i+1} - t_j)]   i, j < n_b
//                   0                                                                   elsewhere
//
// n_b: the length of sequence b. Buckets, t and either bias being absent:
// ops/kernels/attention/hstu_attention.h. Backward: the sums of dbias over the elements that read each
// weight.
//
// T: float32, float16 or bfloat16, CUDA; the weights and their gradients are float32. Matrices are
// contiguous. Determinism: the same bits from run to run, without atomics.   Exactness: T1, sums in
// float32. Errors: the binding checks shapes and dtypes; 2 max_len - 1 <= position_bias_size.
#pragma once

#include <cstdint>

#include "base/dtype.h"

#ifdef SEQFUSE_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace seqfuse::ops {

struct RelativeBiasParams {
  const float* position_bias;    // [position_bias_size]; null: none
  const float* time_bias;        // [num_time_buckets]; null: none
  const int64_t* offsets;        // [B + 1]
  const int64_t* timestamps;     // [offsets[B]]; with time_bias
  const int64_t* request_times;  // [B]; null: the last timestamp
  void* bias;                    // T [B, max_len, max_len]; backward reads dbias here
  int64_t batch, max_len;
  int64_t position_bias_size, num_time_buckets;
  // Backward only: a row of position_bias_size + num_time_buckets sums for each sequence.
  float* partials;  // [B, position_bias_size + num_time_buckets]
};

#ifdef SEQFUSE_HAS_CUDA
cudaError_t relative_bias_forward_cuda(const RelativeBiasParams& params, DType dtype,
                                       cudaStream_t stream);
// Writes partials; their sum over the sequences is the gradient.
cudaError_t relative_bias_backward_cuda(const RelativeBiasParams& params, DType dtype,
                                        cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
