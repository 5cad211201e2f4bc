// Limits of the current GPU. To emulate an older GPU on a newer one, set in the environment:
//
//   SEQFUSE_FORCE_SM80=1  an A100: 164 KiB of shared memory, and no kernels for SM 9.0
//   SEQFUSE_FORCE_SM86=1  SM 8.6 and 8.9 (RTX 30 and 40, A10, L4, L40): 100 KiB
//
// Instructions, clocks and caches remain those of the newer GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>

namespace seqfuse::ops {

// Shared memory available to a block, in bytes.
constexpr int kSharedOfSm80 = 163 * 1024, kSharedOfSm86 = 99 * 1024;
// Shared memory of an SM, in bytes. Each block takes some for itself.
constexpr int kSharedOfSm80Processor = 164 * 1024, kSharedOfSm86Processor = 100 * 1024;
constexpr int kSharedOfBlockItself = 1024;

// How many blocks with this much shared memory an SM runs at a time.
constexpr int blocks_within(int processor_bytes, int block_bytes) {
  return processor_bytes / (block_bytes + kSharedOfBlockItself);
}

// 80, 86, or 0: use the GPU as it is.
inline int forced_sm() {
  static const int sm = [] {
    const auto is_set = [](const char* variable) {
      const char* const value = std::getenv(variable);
      return value && value[0] == '1';
    };
    return is_set("SEQFUSE_FORCE_SM86") ? 86 : is_set("SEQFUSE_FORCE_SM80") ? 80 : 0;
  }();
  return sm;
}

// An attribute of the current device, limited to the emulated one's. Errors: those of the CUDA
// runtime.
inline cudaError_t forced_attribute(int& value, cudaDeviceAttr attribute, int of_sm80,
                                    int of_sm86) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&value, attribute, device);
  if (forced_sm() == 80) value = std::min(value, of_sm80);
  if (forced_sm() == 86) value = std::min(value, of_sm86);
  return error;
}

// Shared memory per block, and per SM, in bytes. Errors: as above.
inline cudaError_t shared_bytes_of_block(int& bytes) {
  return forced_attribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedOfSm80,
                          kSharedOfSm86);
}
inline cudaError_t shared_bytes_of_processor(int& bytes) {
  return forced_attribute(bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                          kSharedOfSm80Processor, kSharedOfSm86Processor);
}

}  // namespace seqfuse::ops
