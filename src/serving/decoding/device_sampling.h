// Picks the next tokens on the device of the logits: next_token (sampling.h), row by row, up to the last
// bit of float64 sums, without the host, so that a CUDA graph can hold it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "serving/decoding/sampling.h"

namespace seqfuse::serving {

class DeviceSampling {
 public:
  // texts[row]: the number of a row's text, for the draws. prompts[row]: its ids so far, for the
  // penalty. drawn: how many tokens of each text have been drawn before.
  DeviceSampling(const SamplingOptions& options, const std::vector<uint64_t>& texts,
                 const std::vector<std::vector<int64_t>>& prompts, uint64_t drawn,
                 int64_t vocabulary, at::Device device);

  // Always the best token, without a penalty: ops::end_step does that.
  bool is_greedy() const { return options_.temperature == 0 && options_.repetition_penalty == 1; }

  // Not for greedy sampling. logits: [rows, V]; ids: int64 [rows], the tokens that they follow, which
  // become the next ones (ops::marked_nan if a logit is NaN); active: int64 [rows], 0 or 1. Enqueues; may allocate.
  void pick(const at::Tensor& logits, const at::Tensor& active, const at::Tensor& ids);

 private:
  SamplingOptions options_;
  at::Tensor texts_, counts_;  // int64 [rows]
  at::Tensor points_;          // float64 [rows]
  at::Tensor seen_;            // bool [rows, V], for the penalty; undefined: none
};

}  // namespace seqfuse::serving
