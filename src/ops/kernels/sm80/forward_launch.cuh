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
  return launch_persistent(kernel, args, Shape::kThreads, Shape::kBlocks, Shape::kSharedBytes,
                           pieces, stream, /*early=*/true);
}

template <class T, int kHeadDim>
cudaError_t launch_forward_type(const Arguments& args, int64_t pieces, cudaStream_t stream) {
  // What is not for 256 runs everywhere.
  constexpr int kLimit = kHeadDim == 256 ? kSharedOfSm80 : kSharedOfSm86;
  if constexpr (kHeadDim == 256) {
    bool is_short = false;
    const cudaError_t error = is_short_of_shared(is_short);
    if (error != cudaSuccess) return error;
    if (is_short) {
      using Short = ForwardShape<kHeadDim, /*kBias=*/true, /*kIsShort=*/true>;
      static_assert(Short::kSharedBytes <= kSharedOfSm86);
      return launch_forward_shape<Short>(forward_kernel<T, Short>, args, pieces, stream);
    }
  }
  if (args.bias.position || args.bias.tables) {
    using Biased = ForwardShape<kHeadDim, true>;
    static_assert(Biased::kSharedBytes <= kLimit && fills_sm80<Biased>());
    return launch_forward_shape<Biased>(forward_kernel<T, Biased>, args, pieces, stream);
  }
  if constexpr (kHeadDim >= 128) {
    int available = 0;
    const cudaError_t error = shared_bytes_of_block(available);
    if (error != cudaSuccess) return error;
    if constexpr (kHeadDim == 128) {
      using Pairs = ForwardPairsShape<kHeadDim>;
      // What one block may have is what all blocks of an SM have together.
      if (reads_whole_chunks(args) && available >= Pairs::kBlocks * Pairs::kSharedBytes)
        return launch_forward_shape<Pairs>(forward_pairs_kernel<T, Pairs>, args, pieces, stream);
    } else if (reads_whole_chunks(args) && args.out.grain == 16) {
      using Large = ForwardLaggingShape<kHeadDim, 2>;
      using Small = ForwardLaggingShape<kHeadDim, 1>;
      static_assert(Small::kSharedBytes <= kSharedOfSm80);
      if (available >= Large::kSharedBytes)
        return launch_forward_shape<Large>(forward_lagging_kernel<T, Large>, args, pieces, stream);
      return launch_forward_shape<Small>(forward_lagging_kernel<T, Small>, args, pieces, stream);
    }
  }
  using Plain = ForwardShape<kHeadDim, false>;
  static_assert(Plain::kSharedBytes <= kLimit && fills_sm80<Plain>());
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
