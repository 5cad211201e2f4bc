// The launch of kernels whose blocks take pieces of work until none is left.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "ops/kernels/attention/sm80/arguments.cuh"
#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops::sm80 {

// Whether a processor of SM 8.0 runs as many blocks as a kernel is made for.
template <class Shape>
constexpr bool fills_sm80() {
  return blocks_within(kSharedOfSm80Processor, Shape::kSharedBytes) >= Shape::kBlocks;
}

// A grid that fills the device with so many blocks on a processor, as far as shared memory goes, or
// less where there are fewer pieces of work. (A block that came later than the others would begin
// with its first piece when they have done the rest.) early: the kernel calls
// wait_for_kernel_before(), and so may begin while the kernel before runs, if that lets it.
template <class Shape, class Kernel>
cudaError_t launch_persistent(Kernel kernel, const Arguments& args, int64_t pieces,
                              cudaStream_t stream, bool early = false) {
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 Shape::kSharedBytes);
  int bytes = 0;
  if (error == cudaSuccess) error = shared_bytes_of_processor(bytes);
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess && early) error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  const int fitting = blocks_within(bytes, Shape::kSharedBytes);
  const int blocks = std::min<int>(Shape::kBlocks, fitting);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(std::min<int64_t>(pieces, processors * blocks));
  config.blockDim = static_cast<unsigned>(Shape::kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(Shape::kSharedBytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = attributes.ptxVersion >= 90 ? 1 : 0;  // code for less does not wait
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace seqfuse::ops::sm80
