// Defines launch_forward; included by the files that instantiate it.
#pragma once

#include "ops/kernels/sm80/forward.cuh"
#include "ops/kernels/sm80/launch.h"
#include "ops/kernels/sm80/persistent.cuh"

namespace seqfuse::ops::sm80 {

template <class T, class Shape>
cudaError_t launch_forward_shape(const Arguments& args, int64_t pieces, cudaStream_t stream) {
  static_assert(Shape::kM == kForwardQueries);
  return launch_persistent(forward_kernel<T, Shape>, args, Shape::kThreads, Shape::kBlocks,
                           Shape::kSharedBytes, pieces, stream);
}

template <class T, int kHeadDim>
cudaError_t launch_forward_type(const Arguments& args, int64_t pieces, cudaStream_t stream) {
  if (args.bias.position || args.bias.tables)
    return launch_forward_shape<T, ForwardShape<kHeadDim, true>>(args, pieces, stream);
  if constexpr (kHeadDim == 256) {
    using Lagging = ForwardShape<kHeadDim, false, 4>;
    int available = 0;
    const cudaError_t error = shared_bytes_of_block(available);
    if (error != cudaSuccess) return error;
    if (available >= Lagging::kSharedBytes)
      return launch_forward_shape<T, Lagging>(args, pieces, stream);
  }
  static_assert(ForwardShape<kHeadDim, true>::kSharedBytes <= kSmallestShared);
  return launch_forward_shape<T, ForwardShape<kHeadDim, false>>(args, pieces, stream);
}

template <int kHeadDim>
cudaError_t launch_forward(const Arguments& args, DType dtype, int64_t pieces,
                           cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_forward_type<__nv_bfloat16, kHeadDim>(args, pieces, stream);
  return launch_forward_type<__half, kHeadDim>(args, pieces, stream);
}

}  // namespace seqfuse::ops::sm80
