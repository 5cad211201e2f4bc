#include "ops/kernels/norm/residual_norm.h"

#include <vector>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/norm/layer_norm_rows.h"

namespace seqfuse::ops {
namespace {

template <class T>
const T* row_of(const void* matrix, int64_t row, int64_t stride) {
  return static_cast<const T*>(matrix) + row * stride;
}

template <class T>
void add_terms(const ResidualNormParams& params, int64_t i, T* s) {
  const T* x = row_of<T>(params.x, i, params.x_stride);
  if (!params.a) {
    std::copy_n(x, params.dim, s);
    return;
  }
  const T* a = row_of<T>(params.a, i, params.a_stride);
#pragma omp simd
  for (int64_t j = 0; j < params.dim; ++j) s[j] = x[j] + a[j];
  if (!params.b) return;
  const T* b = row_of<T>(params.b, i, params.b_stride);
#pragma omp simd
  for (int64_t j = 0; j < params.dim; ++j) s[j] += b[j];
}

template <class T>
void write_norm(const T* s, cpu::RowStats<T> stats, const T* w, const T* c, int64_t dim, T* y) {
#pragma omp simd
  for (int64_t j = 0; j < dim; ++j) y[j] = (s[j] - stats.mean) * stats.rstd * w[j] + c[j];
}

template <class T>
void forward(const ResidualNormParams& params) {
  const int64_t dim = params.dim;
  const cpu::Affine<T> weight(params.weight, dim, 1), bias(params.bias, dim, 0);
  const cpu::Affine<T> weight2(params.weight2, dim, 1), bias2(params.bias2, dim, 0);
  parallel_for(params.rows, cpu::row_grain(dim), [&](int64_t begin, int64_t end) {
    std::vector<T> s(dim);
    for (int64_t i = begin; i < end; ++i) {
      add_terms(params, i, s.data());
      if (params.sum) std::copy_n(s.data(), dim, static_cast<T*>(params.sum) + i * dim);
      const auto stats = cpu::row_stats(s.data(), dim, static_cast<T>(params.eps));
      T* y = static_cast<T*>(params.y) + i * dim;
      write_norm(s.data(), stats, weight.data(), bias.data(), dim, y);
      if (params.residual) {
        const T* r = row_of<T>(params.residual, i, params.residual_stride);
#pragma omp simd
        for (int64_t j = 0; j < dim; ++j) y[j] += r[j];
      }
      if (params.y2) {
        write_norm(s.data(), stats, weight2.data(), bias2.data(), dim,
                   static_cast<T*>(params.y2) + i * dim);
      }
      if (!params.mean) continue;
      static_cast<T*>(params.mean)[i] = stats.mean;
      static_cast<T*>(params.rstd)[i] = stats.rstd;
    }
  });
}

}  // namespace

void residual_norm_forward_cpu(const ResidualNormParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
