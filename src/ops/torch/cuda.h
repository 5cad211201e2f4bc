// Runs an operator on the device of its arguments.
#pragma once

#include <torch/types.h>

#include "ops/torch/checks.h"

#ifdef SEQFUSE_HAS_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace seqfuse::ops {

// Makes the device of the arguments the current one.
struct DeviceGuard {
#ifdef SEQFUSE_HAS_CUDA
  explicit DeviceGuard(const Tensor& x) {
    if (x.is_cuda()) guard.set_index(x.get_device());
  }
  c10::cuda::OptionalCUDAGuard guard;
#else
  explicit DeviceGuard(const Tensor&) {}
#endif
};

// SEQFUSE_RUN(x, dropout_forward, params, dtype): dropout_forward_cuda(params, dtype, stream) on
// the current stream if x is on a GPU, else dropout_forward_cpu(params, dtype).
#ifdef SEQFUSE_HAS_CUDA
#define SEQFUSE_RUN(tensor, name, ...)                                             \
  do {                                                                             \
    if ((tensor).is_cuda()) {                                                      \
      C10_CUDA_CHECK(name##_cuda(__VA_ARGS__, c10::cuda::getCurrentCUDAStream())); \
    } else {                                                                       \
      name##_cpu(__VA_ARGS__);                                                     \
    }                                                                              \
  } while (false)
#else
#define SEQFUSE_RUN(tensor, name, ...) name##_cpu(__VA_ARGS__)
#endif

// The dtype of statistics, losses and sums over tensors of a dtype: float32 for 16-bit types.
inline at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Options of such tensors on x's device.
inline at::TensorOptions sum_options(const Tensor& x) {
  return x.options().dtype(sum_type(x.scalar_type()));
}

}  // namespace seqfuse::ops
