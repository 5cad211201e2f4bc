// Ridge regression: a weighted sum of features, from few examples.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "tuning/boosted_trees.h"

namespace seqfuse::tuning {

class Ridge {
 public:
  Ridge() = default;
  Ridge(double intercept, std::vector<double> weights)
      : intercept_(intercept), weights_(std::move(weights)) {}

  // Squared loss, with `penalty` > 0 times the squares of the weights of features that were scaled to
  // variance 1. A feature that never varies has weight 0. One target for each row; all finite; at
  // least one row. Throws Error if not.
  void fit(const FeatureRows& features, std::span<const double> targets, double penalty);

  // row: as many features as weights.
  double predict(std::span<const double> row) const;

  double intercept() const { return intercept_; }
  const std::vector<double>& weights() const { return weights_; }

 private:
  double intercept_ = 0;
  std::vector<double> weights_;
};

}  // namespace seqfuse::tuning
