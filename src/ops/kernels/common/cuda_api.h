// CUDA types for launcher declarations, in builds with CUDA. Headers declare launchers under
// SEQFUSE_CUDA_API, so that any C++ file can include them in any build.
#pragma once

#if defined(SEQFUSE_HAS_CUDA) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#define SEQFUSE_CUDA_API 1
#endif
