// Distributes the windows of a batch so that all processes have about the same predicted work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seqfuse::distributed {

// The cost of a window of n tokens: n * per_token + n^2, where one pair of tokens costs 1 in
// attention.
struct WorkModel {
  double per_token = 0;

  double cost(int64_t tokens) const {
    const auto n = static_cast<double>(tokens);
    return n * (per_token + n);
  }
  // An HSTU layer: five matrices of hidden_size x (heads * head_dim) per token, and two products
  // per pair of tokens, half of them masked by causal attention.
  static WorkModel of_hstu(int64_t hidden_size) {
    return {.per_token = 5.0 * static_cast<double>(hidden_size)};
  }
};

// Splits the indices of costs into `parts` parts, each in ascending order. Assigns windows in order
// of descending cost, each to the part with the least work (the first of equals). At most 4/3 of
// the optimum; in practice within a few percent of the mean if parts have several windows.
std::vector<std::vector<int64_t>> deal_by_cost(std::span<const double> costs, int parts);

// Consecutive ranges whose sizes differ by at most 1.
std::vector<std::vector<int64_t>> deal_by_count(int64_t count, int parts);

}  // namespace seqfuse::distributed
