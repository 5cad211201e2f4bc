// Ways to sample, for tests of what picks tokens.
#pragma once

#include <vector>

#include "serving/decoding/sampling.h"

namespace seqfuse::test {

inline std::vector<serving::SamplingOptions> samplings() {
  return {{.temperature = 1, .seed = 3},
          {.temperature = 0.7, .top_k = 40, .seed = 4},
          {.temperature = 1.3, .top_p = 0.9, .seed = 5},
          {.temperature = 1, .top_k = 1, .seed = 6},
          {.temperature = 1, .top_k = 5000, .top_p = 0.5, .repetition_penalty = 1.4, .seed = 7},
          {.repetition_penalty = 1.3}};
}

}  // namespace seqfuse::test
