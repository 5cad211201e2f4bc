// Batches of sequences of similar lengths, with a bounded number of tokens each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::serving {

// Indices of the sequences, the longest first, equal lengths in their order. A batch has at most
// batch_tokens tokens, or one sequence.
std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths,
                                                    int64_t batch_tokens);

}  // namespace seqfuse::serving
