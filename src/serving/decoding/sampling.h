// The next token from logits: the best one, or a draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::serving {

struct SamplingOptions {
  double temperature = 0;  // 0: always the best token, of equal ones the lowest id
  int64_t top_k = 0;       // draw from the k best only; 0: no limit
  double top_p = 1;        // draw from the fewest best whose probabilities reach p; 1: no limit
  double repetition_penalty =
      1;  // divides (negative: multiplies) logits of tokens that came before
  uint64_t seed = 0;

  // Throws UsageError: out of range.
  void check() const;
};

// logits [V]. before: ids of the prompt and what followed, for the penalty. A draw depends on the
// seed, the text's number and the step alone, never on what else is in the batch. In order:
// repetition penalty, temperature, top k, top p. Of equal logits the lower id comes first. Throws
// Error where a logit is NaN.
int64_t next_token(std::span<const float> logits, const SamplingOptions& options,
                   const std::vector<int64_t>& before, uint64_t text, uint64_t step);

}  // namespace seqfuse::serving
