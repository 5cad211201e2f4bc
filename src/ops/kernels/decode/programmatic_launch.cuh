// Dependent launches (SM 9.0): a kernel starts while the one before it in the stream still runs, and
// waits before it reads what that one writes. On SM 8.0 kernels follow each other.
//
// A kernel lets the next one start after its own wait, so at most two run at a time: what a kernel reads
// before its wait (weights, keys of earlier tokens) no kernel that still runs can be writing.
#pragma once

#include <cuda_runtime.h>

#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops::cuda {

// The next kernel of the stream may start.
__device__ __forceinline__ void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// The kernels before this one have ended, and what they wrote can be read.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// yes: the current GPU has SM 9.0's launches and copies. Errors: those of the CUDA runtime.
inline cudaError_t has_dependent_launches(bool& yes) {
  int device = 0, major = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  const cudaError_t error =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  yes = major >= 9 && forced_sm() == 0;
  return error;
}

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
  bool early = true;  // may start while the kernel before it runs
};

template <class... Parameters, class... Arguments>
cudaError_t launch_programmatic(void (*kernel)(Parameters...), const LaunchShape& shape,
                                cudaStream_t stream, Arguments&&... arguments) {
  bool dependent = false;
  if (const cudaError_t error = has_dependent_launches(dependent)) return error;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent && shape.early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace seqfuse::ops::cuda
