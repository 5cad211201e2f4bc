// Launches a kernel for SM 9.0 of softmax attention under a mask.
#pragma once

#include "ops/kernels/attention/masked_launch.cuh"
#include "ops/kernels/attention/sm90/masked_tiles.cuh"

namespace seqfuse::ops::attention::sm90 {

using MaskedTilesKernel = void (*)(MaskedArguments, MaskedTiles);

// The kernel of a dtype, for a problem with copied_tiles.
inline cudaError_t launch_with_tiles(const Config& config, MaskedTilesKernel f16,
                                     MaskedTilesKernel bf16, DType dtype, int64_t blocks,
                                     cudaStream_t stream, const MaskedArguments& args,
                                     bool backward) {
  MaskedTiles tiles{};
  const cudaError_t error = make_masked_tiles(tiles, args, backward);
  if (error != cudaSuccess) return error;
  return launch_blocks(config, f16, bf16, dtype, blocks, stream, args, tiles);
}

}  // namespace seqfuse::ops::attention::sm90
