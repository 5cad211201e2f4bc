// Launches a kernel for SM 9.0 of softmax attention under a mask.
#pragma once

#include "base/dtype.h"
#include "ops/kernels/attention/sm90/masked_tiles.cuh"

namespace seqfuse::ops::attention::sm90 {

using MaskedTilesKernel = void (*)(MaskedArguments, MaskedTiles);

inline cudaError_t launch_masked(MaskedTilesKernel kernel, int shared_bytes, int64_t blocks,
                                 bool backward, const MaskedArguments& args, cudaStream_t stream) {
  MaskedTiles tiles{};
  cudaError_t error = make_masked_tiles(tiles, args, backward);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(blocks), kMaskedThreads, static_cast<size_t>(shared_bytes),
           stream>>>(args, tiles);
  return cudaGetLastError();
}

}  // namespace seqfuse::ops::attention::sm90
