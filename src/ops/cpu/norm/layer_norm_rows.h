// Layer norm of single rows and sums over rows, shared by layer_norm.cpp and layer_norm_gate.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "ops/cpu/row_loop.h"

namespace seqfuse::ops::cpu {

template <class T>
struct RowStats {
  T mean, rstd;
};

// Two passes over the row; the second reads from cache.
template <class T>
inline RowStats<T> row_stats(const T* x, int64_t dim, T eps) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < dim; ++j) sum += x[j];
  const T mean = sum / static_cast<T>(dim);
  T squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t j = 0; j < dim; ++j) squares += (x[j] - mean) * (x[j] - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<T>(dim) + eps)};
}

// dx of one row for a given gradient dy of its layer norm; adds the row's part of dweight and
// dbias.
template <class T>
inline void row_backward(const T* x, RowStats<T> stats, const T* weight, const T* dy, int64_t dim,
                         T* dx, T* dweight, T* dbias) {
  const auto [mean, rstd] = stats;
  T sum_g = 0, sum_gn = 0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
  for (int64_t j = 0; j < dim; ++j) {
    const T n = (x[j] - mean) * rstd, g = dy[j] * weight[j];
    dweight[j] += dy[j] * n;
    dbias[j] += dy[j];
    sum_g += g;
    sum_gn += g * n;
  }
  const T mean_g = sum_g / static_cast<T>(dim), mean_gn = sum_gn / static_cast<T>(dim);
#pragma omp simd
  for (int64_t j = 0; j < dim; ++j) {
    const T n = (x[j] - mean) * rstd, g = dy[j] * weight[j];
    dx[j] = rstd * (g - mean_g - n * mean_gn);
  }
}

// weight or bias [dim], or a constant if it is absent.
template <class T>
class Affine {
 public:
  Affine(const void* values, int64_t dim, T otherwise)
      : constant_(values ? 0 : dim, otherwise),
        values_(values ? static_cast<const T*>(values) : constant_.data()) {}
  const T* data() const { return values_; }

 private:
  std::vector<T> constant_;
  const T* values_;
};

// Runs body(begin, end, dweight, dbias) on ranges of rows, each with its own zeroed sums [dim],
// then adds the sums in order of range and writes them to dweight and dbias unless null. Ranges do
// not depend on the number of threads.
template <class T, class Body>
void sum_over_rows(int64_t rows, int64_t dim, void* dweight, void* dbias, Body&& body) {
  // 32 ranges keep the threads busy, and adding 32 sums is cheap.
  const int64_t length = std::max(row_grain(dim), (rows + 31) / 32);
  const int64_t ranges = (rows + length - 1) / length;
  std::vector<T> sums(ranges * 2 * dim);
  parallel_tasks(ranges, [&](int64_t range) {
    T* own = sums.data() + range * 2 * dim;
    body(range * length, std::min(rows, (range + 1) * length), own, own + dim);
  });
  if (!dweight) return;
  std::vector<T> total(2 * dim);
  for (int64_t range = 0; range < ranges; ++range) {
    for (int64_t j = 0; j < 2 * dim; ++j) total[j] += sums[range * 2 * dim + j];
  }
  std::copy_n(total.data(), dim, static_cast<T*>(dweight));
  std::copy_n(total.data() + dim, dim, static_cast<T*>(dbias));
}

}  // namespace seqfuse::ops::cpu
