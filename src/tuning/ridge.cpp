#include "tuning/ridge.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace seqfuse::tuning {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Solves a positive definite system [n, n + 1], whose last column is the right side.
std::vector<double> solve(Matrix system) {
  const size_t n = system.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t r = i + 1; r < n; ++r) {
      const double factor = system[r][i] / system[i][i];
      for (size_t c = i; c <= n; ++c) system[r][c] -= factor * system[i][c];
    }
  }
  std::vector<double> solution(n);
  for (size_t i = n; i-- > 0;) {
    double rest = system[i][n];
    for (size_t c = i + 1; c < n; ++c) rest -= system[i][c] * solution[c];
    solution[i] = rest / system[i][i];
  }
  return solution;
}

}  // namespace

void Ridge::fit(const FeatureRows& features, std::span<const double> targets, double penalty) {
  const size_t rows = features.rows(), columns = features.columns;
  SEQFUSE_CHECK(
      rows > 0 && rows == targets.size() && penalty > 0,
      "ridge: {} rows of features, {} targets, penalty {}; expected a target for each row, "
      "a row, and a penalty above 0",
      rows, targets.size(), penalty);
  const auto count = static_cast<double>(rows);
  std::vector<double> mean(columns), scale(columns);  // scale: 1 / standard deviation
  for (size_t c = 0; c < columns; ++c) {
    double variance = 0;
    for (size_t r = 0; r < rows; ++r) mean[c] += features.row(r)[c] / count;
    for (size_t r = 0; r < rows; ++r)
      variance += (features.row(r)[c] - mean[c]) * (features.row(r)[c] - mean[c]) / count;
    const double least = 1e-18 * (1 + mean[c] * mean[c]);  // what rounding alone could give
    scale[c] = variance > least ? 1 / std::sqrt(variance) : 0;
  }
  const double mean_target = std::accumulate(targets.begin(), targets.end(), 0.0) / count;

  Matrix system(columns, std::vector<double>(columns + 1));
  std::vector<double> z(columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) z[c] = (features.row(r)[c] - mean[c]) * scale[c];
    for (size_t i = 0; i < columns; ++i) {
      for (size_t c = 0; c < columns; ++c) system[i][c] += z[i] * z[c];
      system[i][columns] += z[i] * (targets[r] - mean_target);
    }
  }
  for (size_t i = 0; i < columns; ++i) system[i][i] += penalty;
  weights_ = solve(std::move(system));
  intercept_ = mean_target;
  for (size_t c = 0; c < columns; ++c) {
    weights_[c] *= scale[c];
    intercept_ -= weights_[c] * mean[c];
  }
}

double Ridge::predict(std::span<const double> row) const {
  SEQFUSE_CHECK(row.size() == weights_.size(), "ridge: {} features; expected {}", row.size(),
                weights_.size());
  return std::inner_product(row.begin(), row.end(), weights_.begin(), intercept_);
}

}  // namespace seqfuse::tuning
