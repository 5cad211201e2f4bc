// Deals the windows of a batch to the processes so that each has the same predicted work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::distributed {

// What a window of n tokens costs: n * per_token + n^2, in multiples of what one pair of tokens
// costs in attention.
struct WorkModel {
  double per_token = 0;

  double cost(int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    return n * (per_token + n);
  }
  // Of an HSTU layer: five matrices of hidden_size x (heads * head_dim) a token, against the two
  // products of a pair of tokens, of which causal attention has half.
  static WorkModel of_hstu(int64_t hidden_size) {
    return {.per_token = 5.0 * static_cast<double>(hidden_size)};
  }
};

// Part of each of `parts` processes: indices of costs, ascending, every one in exactly one part.
// Longest first, each to the process that has least; of equals the first. At most 4/3 of the best
// possible, and in practice within a few percent of the mean once a part has several windows.
std::vector<std::vector<int64_t>> deal_by_cost(std::span<const double> costs, int parts);

// Consecutive runs whose counts differ by 1 at most.
std::vector<std::vector<int64_t>> deal_by_count(int64_t count, int parts);

}  // namespace seqfuse::distributed
