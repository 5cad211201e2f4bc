// What follows the first product of a feed-forward block: y_ij = act(x_ij + b_j).
//
// act: GELU with erf, x Phi(x); GELU with tanh ("gelu_new"); ReLU. NaN gives NaN.
//
// T: float64 and float32 on the CPU; float32, float16 and bfloat16 on CUDA. Computed in float64 where T
// is float64, else in float32, with one rounding to T. rows = 0 is allowed; dim is at least 1.
//
// Aliasing: y may be x; it may not overlap b, nor x in another way.
// Determinism: an element depends on x_ij and b_j alone.
// Exactness: T2; |error| below 1e-8 + 2 ulp on the CPU in float32, 4e-7 |x| + 1e-8 on CUDA, before
// rounding to T.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

enum class Activation : int32_t { gelu_erf, gelu_tanh, relu };

struct BiasActivationParams {
  const void* x;     // T [rows, dim], contiguous
  const void* bias;  // T [dim]
  void* y;           // T [rows, dim], contiguous
  int64_t rows, dim;
  Activation activation;
};

void bias_activation_cpu(const BiasActivationParams& params, DType dtype);
#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t bias_activation_cuda(const BiasActivationParams& params, DType dtype,
                                 cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
