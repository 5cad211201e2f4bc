#include "models/common/step_seed.h"

#include "base/random.h"

namespace seqfuse::models {

int64_t StepSeed::derive(uint64_t site) const {
  // The upper half of the stream keeps it apart from the data loader's streams.
  const Philox philox{seed, (uint64_t{0x6d6f64656c} << 24) + site};
  const auto words = philox(static_cast<uint64_t>(step) ^ (static_cast<uint64_t>(rank) << 40));
  return static_cast<int64_t>((uint64_t{words[0]} << 32) | words[1]);
}

}  // namespace seqfuse::models
