// The number of events of each synthesized user.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace seqfuse::data::synthetic {

// A point of a quantile function: this share of the users has at most this many events.
struct Quantile {
  double share;
  double events;
};

// Quantiles of real datasets.
std::span<const Quantile> kuairand_pure_lengths();
std::span<const Quantile> kuairand_1k_lengths();
std::span<const Quantile> kuairand_27k_lengths();
std::span<const Quantile> ml_1m_lengths();

// One length per user, at least 1: the quantile function at evenly spaced shares in random order,
// so that even few users follow the distribution. Multiplied by scale, or scaled to add up to
// `total` (total >= users).
std::vector<int64_t> draw_lengths(std::span<const Quantile> quantiles, int64_t users, double scale,
                                  std::optional<int64_t> total, uint64_t seed);

}  // namespace seqfuse::data::synthetic
