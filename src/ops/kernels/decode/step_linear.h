// Linear layers of a decoding step on a GPU: y = act(W x + bias) for 1 to 16 rows of x, at the speed
// at which weights are read. A launch has one linear layer, or two: either with results of their own
// (the projections of attention and the first of the MLP), or both added to a residual.
//
// T: float16 or bfloat16. Weights: T, or int8 with a float32 scale for each output.
// k is a multiple of 8 (16 for int8); weights and x are 16-byte aligned.
//
// Sums are float32, in an order that depends on n and k alone: a row's result is the same bits for
// any batch. Roundings to T: W x + bias, act, and each sum of
// (second + first) + residual. Exactness: T2.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/gemm/decode_linear.h"

namespace seqfuse::ops {

struct StepLinear {
  const void* weight = nullptr;   // [n, k], contiguous
  const float* scales = nullptr;  // [n]; null: weights are T
  const void* bias = nullptr;     // T [n], or null
  const void* x = nullptr;        // T [batch, k], contiguous
  LinearActivation activation = LinearActivation::none;
  void* y = nullptr;  // T [batch, n], contiguous; unused in the second of two that are added
  int64_t n = 0, k = 0;
};

struct StepLinearParams {
  StepLinear linear[2];
  int count = 1;  // linear layers: 1 or 2
  int64_t batch = 1;
  // T [batch, n], contiguous, may be y: y of linear[0] is (second + first) + residual, or first +
  // residual. Null: each has its own y.
  const void* residual = nullptr;
  bool early = true;  // SM 9.0: starts, and reads weights, while the launch before it runs
};

#ifdef SEQFUSE_CUDA_API
// Enqueues one launch. cudaErrorInvalidValue: a batch or dtype not named above.
cudaError_t step_linear_cuda(const StepLinearParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
