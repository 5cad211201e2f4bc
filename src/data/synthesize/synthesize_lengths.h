// How many events each synthesized user has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace seqfuse::data::synthetic {

// A point of a quantile function: a share of the users have at most so many events.
struct Quantile {
  double share;
  double events;
};

// Quantiles of real data sets.
std::span<const Quantile> kuairand_pure_lengths();
std::span<const Quantile> kuairand_1k_lengths();
std::span<const Quantile> kuairand_27k_lengths();
std::span<const Quantile> ml_1m_lengths();

// One length per user, at least 1: the quantile function at evenly spaced shares,
// in random order, so that even few users have the distribution. Times scale; with `total`, scaled
// so that they add up to it (total >= users).
std::vector<int64_t> draw_lengths(std::span<const Quantile> quantiles, int64_t users, double scale,
                                  std::optional<int64_t> total, uint64_t seed);

}  // namespace seqfuse::data::synthetic
