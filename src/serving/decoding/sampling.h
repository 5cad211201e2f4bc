// Picks the next token from logits: the best one, or a random draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::serving {

struct SamplingOptions {
  double temperature = 0;  // 0: always the best token; lowest id in a tie
  int64_t top_k = 0;       // draw only from the k best; 0: no limit
  double top_p = 1;        // draw from the fewest tokens that reach probability p; 1: no limit
  double repetition_penalty = 1;  // divides (negative: multiplies) the logits of earlier tokens
  uint64_t seed = 0;

  // Throws UsageError if a value is out of range.
  void check() const;
};

// logits [V]. before: ids of the prompt and its continuation, for the penalty. A draw depends only
// on the seed, the text's number and the step, not on the rest of the batch. Applied in order:
// repetition penalty, temperature, top k, top p. Ties go to the lower id. Throws Error if a logit
// is NaN.
int64_t next_token(std::span<const float> logits, const SamplingOptions& options,
                   const std::vector<int64_t>& before, uint64_t text, uint64_t step);

// Throws Error: the logit of that token is NaN.
[[noreturn]] void refuse_nan(int64_t id);

}  // namespace seqfuse::serving
