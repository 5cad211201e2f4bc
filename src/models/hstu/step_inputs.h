// Where an HSTU model draws random numbers in a step, and what a CUDA graph of a step reads.
#pragma once

#include <cstdint>
#include <vector>

#include "models/common/step_seed.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::models::hstu {

// StepSeed::derive takes one of these; the other layers follow the first.
enum SeedSite : uint64_t { kNegativesSite = 0, kInputDropoutSite = 1, kFirstLayerSite = 16 };

// The seeds of all places in a model of spec.
std::vector<int64_t> all_seeds(const StepSeed& seed, const ModelSpec& spec);

// The values that change from step to step: a step that is replayed as a CUDA graph reads them from
// the device, where they travel with the batch. Empty for other steps.
struct StepInputs {
  std::vector<int64_t> seeds;          // all_seeds()
  std::vector<int64_t> num_positions;  // one: the losses that count are the first ones
};

}  // namespace seqfuse::models::hstu
