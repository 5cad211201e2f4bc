#include "ops/kernels/norm/l2_normalize.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/row_loop.h"

namespace seqfuse::ops {
namespace {

template <class T>
T dot(const T* a, const T* b, int64_t dim) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < dim; ++j) sum += a[j] * b[j];
  return sum;
}

template <class T>
void forward(const L2NormalizeParams& params) {
  const int64_t dim = params.dim;
  cpu::for_each_row(params.rows, dim, [&](int64_t i) {
    const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
    T* y = static_cast<T*>(params.y) + i * params.y_stride;
    const T norm = std::sqrt(dot(x, x, dim));
    const T scale = 1 / std::max(norm, static_cast<T>(params.eps));
#pragma omp simd
    for (int64_t j = 0; j < dim; ++j) y[j] = x[j] * scale;
    static_cast<T*>(params.norm)[i] = norm;
  });
}

template <class T>
void backward(const L2NormalizeBackwardParams& params) {
  const int64_t dim = params.dim;
  cpu::for_each_row(params.rows, dim, [&](int64_t i) {
    const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
    const T* dy = static_cast<const T*>(params.dy) + i * params.dy_stride;
    T* dx = static_cast<T*>(params.dx) + i * params.dx_stride;
    const T norm = static_cast<const T*>(params.norm)[i], eps = static_cast<T>(params.eps);
    const T scale = 1 / std::max(norm, eps);
    // Below eps the divisor is constant, so the projection term vanishes.
    const T along = norm > eps ? dot(x, dy, dim) * scale * scale : T{0};
#pragma omp simd
    for (int64_t j = 0; j < dim; ++j) dx[j] = (dy[j] - x[j] * along) * scale;
  });
}

}  // namespace

void l2_normalize_forward_cpu(const L2NormalizeParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

void l2_normalize_backward_cpu(const L2NormalizeBackwardParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { backward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
