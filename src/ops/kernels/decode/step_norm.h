// Layer norms of a decoding step on a GPU: of the same rows, with one or two affine forms, as two
// branches of a layer need them.
//
// T: float16 or bfloat16. size is a multiple of 8; all pointers are 16-byte aligned. Statistics are
// float32 in two passes; a row's result is the same bits for any batch. Exactness: T2.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops {

struct StepNormParams {
  const void* x = nullptr;                    // T [batch, size], contiguous
  const void *weight[2] = {}, *bias[2] = {};  // T [size]
  void* y[2] = {};                            // T [batch, size], contiguous
  int count = 1;                              // norms: 1 or 2
  int64_t batch = 1, size = 0;
  double eps = 1e-5;
  bool early = true;  // SM 9.0: starts while the launch before it in the stream runs
};

#ifdef SEQFUSE_CUDA_API
// Enqueues one launch.
cudaError_t step_norm_cuda(const StepNormParams& params, DType dtype, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
