// Random values and comparisons for the checks of the kernels of a decoding step.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "benchmarks/kernels/device_memory.cuh"

namespace seqfuse::bench {

template <class T>
double rounded(double v) {
  return value_of(make<T>(v));
}
template <class T>
constexpr DType kDType = std::is_same_v<T, __half> ? DType::f16 : DType::bf16;
template <class T>
constexpr double kUlp = std::is_same_v<T, __half> ? 1.0 / 1024 : 1.0 / 128;

inline std::mt19937 generator(1);
template <class T>
std::vector<T> random_values(size_t n, double scale) {
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<T> values(n);
  for (T& v : values) v = make<T>(normal(generator));
  return values;
}

inline int failures = 0;
void expect(bool ok, const char* format, auto... values) {
  if (ok) return;
  ++failures;
  std::printf("FAILED ");
  std::printf(format, values...);
  std::printf("\n");
  std::fflush(stdout);
}

// The larger of worst and this error; infinite for NaN.
inline double worse(double worst, double actual, double expected) {
  const double error = std::abs(actual - expected) / (1 + std::abs(expected));
  return std::isnan(error) ? INFINITY : std::max(worst, error);
}

}  // namespace seqfuse::bench
