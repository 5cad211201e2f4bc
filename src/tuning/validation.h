// How good a predictor is on what it has not seen: rank correlation, and what choosing by it costs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tuning/predictor.h"

namespace seqfuse::tuning {

// Spearman's rank correlation, -1 to 1; equal values share the mean of their ranks. NaN if all values of
// one side are equal, or there is one pair or none.
double rank_correlation(std::span<const double> a, std::span<const double> b);

// If the k schemes that are predicted to be the fastest are measured, how much slower the best of them is
// than the best of all: 0: not at all, 0.02: by 2 %. k: 1 or more.
double top_k_regret(std::span<const double> measured, std::span<const double> predicted, size_t k);

inline constexpr std::array<size_t, 3> kTopK{1, 5, 10};

struct HeldOut {
  Setting setting;
  int64_t examples = 0;
  double correlation = 0;
  std::array<double, kTopK.size()> regret{};  // of the kTopK
};

struct Validation {
  // Per example, by a predictor that was not trained on it; NaN if there was none.
  std::vector<double> predicted;
  std::vector<HeldOut> settings;  // those with predictions
};

// In `folds` parts: all times of a scheme, in whatever setting, are in the same part, drawn from seed.
// Fewer parts if there are fewer schemes; no predictions from fewer than three.
Validation hold_out_schemes(std::span<const Example> examples, const BoostingOptions& options,
                            int folds, uint64_t seed);

// Each setting in turn is predicted from the other ones. No predictions if there is one setting.
Validation hold_out_settings(std::span<const Example> examples, const BoostingOptions& options);

}  // namespace seqfuse::tuning
