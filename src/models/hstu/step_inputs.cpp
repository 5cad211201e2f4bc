#include "models/hstu/step_inputs.h"

namespace seqfuse::models::hstu {

std::vector<int64_t> all_seeds(const StepSeed& seed, const ModelSpec& spec) {
  std::vector<int64_t> seeds{seed.derive(kNegativesSite), seed.derive(kInputDropoutSite)};
  for (int64_t layer = 0; layer < spec.network.num_layers; ++layer) {
    seeds.push_back(seed.derive(kFirstLayerSite + layer));
  }
  return seeds;
}

}  // namespace seqfuse::models::hstu
