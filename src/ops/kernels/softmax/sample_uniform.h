// Uniform samples, with replacement: samples[i] = pool[floor(word_i size / 2^32)].
//
// word_i is one of Philox's four words for a counter. Blocks of 64 samples take 16 counters: sample
// i has word (i mod 64) / 16 of counter 16 (i / 64) + i mod 16.
//
// CPU and CUDA. size is at least 1 and below 2^32; count = 0 is allowed. samples aliases no input.
// Determinism: depends only on seed and i, so the same for any number of threads and on a GPU.
// Errors: the binding checks, on the CPU, that every id of the pool lies in [0, 2^31).
#pragma once

#include <cstdint>

#include "ops/kernels/common/cuda_api.h"
#include "ops/kernels/step/seed.h"

namespace seqfuse::ops {

struct SampleUniformParams {
  const int64_t* pool;  // [size]
  int32_t* samples;     // [count]
  int64_t size, count;
  Seed seed;
};

void sample_uniform_cpu(const SampleUniformParams& params);

#ifdef SEQFUSE_CUDA_API
// Enqueues on the stream of the current device; no allocation, no synchronisation.
cudaError_t sample_uniform_cuda(const SampleUniformParams& params, cudaStream_t stream);
#endif

}  // namespace seqfuse::ops
