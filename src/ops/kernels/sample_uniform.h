// Uniform samples, with replacement: samples[i] = pool[floor(word_i size / 2^32)].
//
// word_i is one of the four words that Philox gives for a counter. Blocks of 64 samples take 16
// counters: sample i has word (i mod 64) / 16 of counter 16 (i / 64) + i mod 16.
//
// CPU. size is at least 1 and below 2^32; count = 0 is allowed. samples aliases no input.
// Determinism: a function of seed and i alone, so the same for any number of threads.
// Errors: the binding checks that every id of the pool lies in [0, 2^31).
#pragma once

#include <cstdint>

namespace seqfuse::ops {

struct SampleUniformParams {
  const int64_t* pool;  // [size]
  int32_t* samples;     // [count]
  int64_t size, count;
  uint64_t seed;
};

void sample_uniform_cpu(const SampleUniformParams& params);

}  // namespace seqfuse::ops
