// The architecture to choose kernels for.
#pragma once

#include "ops/kernels/common/device_limits.h"

namespace seqfuse::ops {

// 10 major + minor of the current device, or of the one that SEQFUSE_FORCE_SM80 or _SM86 emulates.
// Errors: those of the CUDA runtime.
inline cudaError_t current_sm(int& sm) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  sm = forced_sm() > 0 ? forced_sm() : 10 * major + minor;
  return error;
}

}  // namespace seqfuse::ops
