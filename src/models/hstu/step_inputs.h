// Seeds of an HSTU training step, and the inputs of a CUDA graph of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "models/common/step_seed.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::models::hstu {

// Arguments of StepSeed::derive; later layers follow the first.
enum SeedSite : uint64_t { kNegativesSite = 0, kInputDropoutSite = 1, kFirstLayerSite = 16 };

// The seeds of all sites in a model of spec.
std::vector<int64_t> all_seeds(const StepSeed& seed, const ModelSpec& spec);

// The values that change from step to step. A step replayed as a CUDA graph reads them from the
// device, where they are sent with the batch. Empty for other steps.
struct StepInputs {
  std::vector<int64_t> seeds;          // all_seeds()
  std::vector<int64_t> num_positions;  // one value: how many leading losses count
};

}  // namespace seqfuse::models::hstu
