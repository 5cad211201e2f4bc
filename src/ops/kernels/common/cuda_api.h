// CUDA's types for the declarations of launchers, in builds that have CUDA. Headers declare their
// launchers under SEQFUSE_CUDA_API, so that every C++ file can include them in every build.
#pragma once

#if defined(SEQFUSE_HAS_CUDA) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#define SEQFUSE_CUDA_API 1
#endif
