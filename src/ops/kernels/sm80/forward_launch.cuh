// Defines launch_forward; included by the files that instantiate it.
#pragma once

#include "ops/kernels/sm80/forward.cuh"
#include "ops/kernels/sm80/forward_lagging.cuh"
#include "ops/kernels/sm80/forward_pairs.cuh"
#include "ops/kernels/sm80/launch.h"
#include "ops/kernels/sm80/persistent.cuh"

namespace seqfuse::ops::sm80 {

template <class Shape>
cudaError_t launch_forward_shape(void (*kernel)(Arguments), const Arguments& args, int64_t pieces,
                                 cudaStream_t stream) {
  static_assert(Shape::kM == kForwardQueries);
  return launch_persistent(kernel, args, Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes,
                           pieces, stream, /*early=*/true);
}

template <class T, int kHeadDim>
cudaError_t launch_forward_type(const Arguments& args, int64_t pieces, cudaStream_t stream) {
  if (args.bias.position || args.bias.tables) {
    using Biased = ForwardShape<kHeadDim, true>;
    static_assert(Biased::kSharedBytes <= kSmallestShared);
    return launch_forward_shape<Biased>(forward_kernel<T, Biased>, args, pieces, stream);
  }
  if constexpr (kHeadDim >= 128) {
    constexpr bool kPairs = kHeadDim == 128;
    using Shape =
        std::conditional_t<kPairs, ForwardPairsShape<kHeadDim>, ForwardLaggingShape<kHeadDim>>;
    int available = 0;
    const cudaError_t error = shared_bytes_of_block(available);
    if (error != cudaSuccess) return error;
    const bool whole_chunks = reads_whole_chunks(args) && (kPairs || args.out.grain == 16);
    // What one block may have is what all blocks of an SM have together.
    if (whole_chunks && available >= Shape::kBlocks * Shape::kSharedBytes) {
      if constexpr (kPairs) {
        return launch_forward_shape<Shape>(forward_pairs_kernel<T, Shape>, args, pieces, stream);
      } else {
        return launch_forward_shape<Shape>(forward_lagging_kernel<T, Shape>, args, pieces, stream);
      }
    }
  }
  using Plain = ForwardShape<kHeadDim, false>;
  return launch_forward_shape<Plain>(forward_kernel<T, Plain>, args, pieces, stream);
}

template <int kHeadDim>
cudaError_t launch_forward(const Arguments& args, DType dtype, int64_t pieces,
                           cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_forward_type<__nv_bfloat16, kHeadDim>(args, pieces, stream);
  return launch_forward_type<__half, kHeadDim>(args, pieces, stream);
}

}  // namespace seqfuse::ops::sm80
