// Measures how fast a model decodes, and counts the bytes that it reads for a token.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kv_cache/rule.h"
#include "models/gpt_neox/model.h"
#include "models/gpt_neox/step_options.h"

namespace seqfuse::serving {

struct SpeedOptions {
  int64_t batch = 1;                   // texts that are decoded together
  int64_t cache_length = 1;            // tokens of each of them before decoding
  int64_t steps = 32;                  // timed, after three that are not
  models::gpt_neox::StepOptions step;  // on a GPU
  std::function<bool()> interrupted;   // asked before each pass. May be empty.
};

struct DecodeSpeed {
  // Sorted, one or more: from the arrival of a token of every text on the host to that of the next ones.
  std::vector<double> step_seconds;
  double first_token_seconds = 0;    // one prompt of cache_length tokens, and the token after it
  int64_t step_bytes = 0;            // bytes_of_step of the middle step
  double copy_bytes_per_second = 0;  // copy_speed, measured just before
  std::optional<int64_t> launches;   // that the host does in a step; unknown on a CPU

  double median_seconds() const { return step_seconds[step_seconds.size() / 2]; }
  double bytes_per_second() const { return static_cast<double>(step_bytes) / median_seconds(); }
};

// Decodes greedily, as generate() does: until the best token of each text is on the host, while a GPU
// already does the next step.
// rule: any but recompute; a full cache needs slots_of_measurement. All texts are copies of one.
// Nothing where it is interrupted before a step is timed.
std::optional<DecodeSpeed> measure_decode(const models::gpt_neox::Model& model,
                                          const kv_cache::Rule& rule, const SpeedOptions& options);

int64_t slots_of_measurement(const SpeedOptions& options);

// Bytes that a step must read: the layers, the last norm and the output matrix once, and the keys and
// values that the token after `before` others sees, of each text.
int64_t bytes_of_step(const models::gpt_neox::Model& model, const kv_cache::Rule& rule,
                      int64_t batch, int64_t before);

// Bytes read and written a second by a copy that is larger than any processor's cache: the best of
// several.
double copy_speed(at::Device device);

}  // namespace seqfuse::serving
