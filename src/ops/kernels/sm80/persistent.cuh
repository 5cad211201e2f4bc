// The launch of kernels whose blocks take pieces of work until none is left.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/kernels/forced_sm80.h"
#include "ops/kernels/sm80/arguments.cuh"

namespace seqfuse::ops::sm80 {

constexpr int kSmallestShared = 163 * 1024;  // what a block may have on SM 8.0

// With SEQFUSE_FORCE_SM80 no more than an A100 has.
inline cudaError_t shared_bytes_of_block(int& bytes) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (sm80_is_forced()) bytes = std::min(bytes, kSmallestShared);
  return error;
}

// A grid that fills the device, or less where there are fewer pieces of work. early: the kernel
// calls wait_for_kernel_before(), and so may begin while the kernel before runs, if that lets it.
template <class Kernel>
cudaError_t launch_persistent(Kernel kernel, const Arguments& args, int threads, int blocks,
                              int shared_bytes, int64_t pieces, cudaStream_t stream,
                              bool early = false) {
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess && early) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(std::min<int64_t>(pieces, processors * blocks));
  config.blockDim = static_cast<unsigned>(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = attributes.ptxVersion >= 90 ? 1 : 0;  // code for less does not wait
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace seqfuse::ops::sm80
