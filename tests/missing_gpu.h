// Why tests that need a GPU are skipped.
#pragma once

#include <torch/cuda.h>
#include <torch/types.h>

namespace seqfuse::test {

// Null if there is one: if (const char* why = missing_gpu()) GTEST_SKIP() << why;
inline const char* missing_gpu() {
#ifdef SEQFUSE_HAS_CUDA
  return torch::cuda::is_available() ? nullptr : "no GPU on this machine";
#else
  return "this build has no CUDA kernels";
#endif
}

}  // namespace seqfuse::test
