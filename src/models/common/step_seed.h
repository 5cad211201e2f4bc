// Random numbers of training steps, as functions of the seed and the step.
#pragma once

#include <cstdint>

namespace seqfuse::models {

// The same (seed, step, rank) gives the same dropout and negatives.
struct StepSeed {
  uint64_t seed = 0;
  int64_t step = 0;  // with gradient accumulation: counts batches
  int64_t rank = 0;  // of the process; each has its own numbers

  // The seed of one site in a step that draws random numbers.
  int64_t derive(uint64_t site) const;
};

}  // namespace seqfuse::models
