// The choices of parts of a decoding step on a GPU, to measure what each part brings: a ladder from PyTorch's
// operators to all parts, then every other combination.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/gpt_neox/step_options.h"

namespace seqfuse::serving {

struct Rung {
  std::string name;  // a rung of the ladder: the part that it adds; else all its parts
  models::gpt_neox::StepOptions step;
  bool int8 = false;    // weights
  bool ladder = false;  // a rung of the ladder; these come first
};

// The seven rungs of the ladder, then the other 27 of the 32 choices of graph, norms, merged, early starts
// and int8, with own kernels.
std::vector<Rung> ladder_rungs();

struct RungSpeed {
  Rung rung;
  double seconds = 0;                // a token, the median
  std::optional<int64_t> launches;   // that the host does in a step
  std::optional<double> perplexity;  // of a text that the same options decode
};

// One line of a table, with the heading before the first: the parts as + and -, milliseconds, how many
// times as fast as `before` (the rung before; none: empty), launches, perplexity.
std::string ladder_heading();
std::string ladder_line(const RungSpeed& speed, const RungSpeed* before);

nlohmann::json ladder_json(const RungSpeed& speed);

}  // namespace seqfuse::serving
