// Defines launch_forward; included by the files that instantiate it.
#pragma once

#include "ops/kernels/attention/sm80/forward.cuh"
#include "ops/kernels/attention/sm80/forward_lagging.cuh"
#include "ops/kernels/attention/sm80/forward_pairs.cuh"
#include "ops/kernels/attention/sm80/launch.h"
#include "ops/kernels/attention/sm80/persistent.cuh"

namespace seqfuse::ops::sm80 {

template <class T, int kHeadDim>
cudaError_t launch_forward_type(const Arguments& args, int block_bytes, int64_t pieces,
                                cudaStream_t stream) {
  const auto launch = [&](auto shape, void (*kernel)(Arguments)) {
    return launch_persistent<decltype(shape)>(kernel, args, pieces, stream, /*early=*/true);
  };
  // What is not for 256 runs everywhere.
  constexpr int kLimit = kHeadDim == 256 ? kSharedOfSm80 : kSharedOfSm86;
  if constexpr (kHeadDim == 256) {
    if (is_short_of_shared(block_bytes)) {
      using Short = ForwardShape<kHeadDim, /*kBias=*/true, /*kIsShort=*/true>;
      static_assert(Short::kSharedBytes <= kSharedOfSm86);
      return launch(Short(), forward_kernel<T, Short>);
    }
  }
  if (args.bias.position || args.bias.tables) {
    using Biased = ForwardShape<kHeadDim, true>;
    static_assert(Biased::kSharedBytes <= kLimit && fills_sm80<Biased>());
    return launch(Biased(), forward_kernel<T, Biased>);
  }
  if constexpr (kHeadDim >= 128) {
    if constexpr (kHeadDim == 128) {
      using Pairs = ForwardPairsShape<kHeadDim>;
      // What one block may have is what all blocks of an SM have together.
      if (reads_whole_chunks(args) && block_bytes >= Pairs::kBlocks * Pairs::kSharedBytes)
        return launch(Pairs(), forward_pairs_kernel<T, Pairs>);
    } else if (reads_whole_chunks(args) && args.out.grain == 16) {
      using Large = ForwardLaggingShape<kHeadDim, 2>;
      using Small = ForwardLaggingShape<kHeadDim, 1>;
      static_assert(Small::kSharedBytes <= kSharedOfSm80);
      if (block_bytes >= Large::kSharedBytes)
        return launch(Large(), forward_lagging_kernel<T, Large>);
      return launch(Small(), forward_lagging_kernel<T, Small>);
    }
  }
  using Plain = ForwardShape<kHeadDim, false>;
  static_assert(Plain::kSharedBytes <= kLimit && fills_sm80<Plain>());
  return launch(Plain(), forward_kernel<T, Plain>);
}

template <int kHeadDim>
cudaError_t launch_forward(const Arguments& args, DType dtype, int block_bytes, int64_t pieces,
                           cudaStream_t stream) {
  if (dtype == DType::bf16)
    return launch_forward_type<__nv_bfloat16, kHeadDim>(args, block_bytes, pieces, stream);
  return launch_forward_type<__half, kHeadDim>(args, block_bytes, pieces, stream);
}

}  // namespace seqfuse::ops::sm80
