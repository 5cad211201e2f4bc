// Dropout with a mask that depends only on the seed and the element's index.
//
//   y_e = x_e m_e      m_e = word_e < p 2^32 ? 0 : 1 / (1 - p)
//
// word_e is one of Philox's four words for a counter. Blocks of 64 elements take 16 counters:
// element e has word (e mod 64) / 16 of counter 16 (e / 64) + e mod 16, so that vector lanes are
// consecutive counters. The backward pass is the same operation on dy.
//
// T: float32 or float64 on the CPU; float32, float16 and bfloat16 on CUDA. count = 0 is allowed.
// Aliasing: y may be x.
// Determinism: the same bits for any number of threads, and on a GPU.   Exactness: T0.
// Errors: the binding checks dtypes and 0 <= p < 1. CUDA: cudaErrorInvalidValue for another dtype.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

struct DropoutParams {
  const void* x;  // T [count]
  void* y;        // T [count]
  int64_t count;
  double p;
  Seed seed;
};

// p 2^32, rounded, at most 2^32 - 1.
inline uint32_t dropout_threshold(double p) {
  return static_cast<uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
}

void dropout_forward_cpu(const DropoutParams& params, DType dtype);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t dropout_forward_cuda(const DropoutParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
