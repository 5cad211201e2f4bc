#include "ops/kernels/norm/layer_norm.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/norm/layer_norm_rows.h"

namespace seqfuse::ops {
namespace {

template <class T>
void forward(const LayerNormParams& params) {
  const int64_t dim = params.dim;
  const cpu::Affine<T> weight(params.weight, dim, 1), bias(params.bias, dim, 0);
  cpu::for_each_row(params.rows, dim, [&](int64_t i) {
    const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
    const T *w = weight.data(), *b = bias.data();
    T* y = static_cast<T*>(params.y) + i * params.y_stride;
    const auto [mean, rstd] = cpu::row_stats(x, dim, static_cast<T>(params.eps));
#pragma omp simd
    for (int64_t j = 0; j < dim; ++j) y[j] = (x[j] - mean) * rstd * w[j] + b[j];
    static_cast<T*>(params.mean)[i] = mean;
    static_cast<T*>(params.rstd)[i] = rstd;
  });
}

template <class T>
void backward(const LayerNormBackwardParams& params) {
  const int64_t dim = params.dim;
  const cpu::Affine<T> weight(params.weight, dim, 1);
  cpu::sum_over_rows<T>(params.rows, dim, params.dweight, params.dbias,
                        [&](int64_t begin, int64_t end, T* dweight, T* dbias) {
                          for (int64_t i = begin; i < end; ++i) {
                            const T* x = static_cast<const T*>(params.x) + i * params.x_stride;
                            const T* dy = static_cast<const T*>(params.dy) + i * params.dy_stride;
                            T* dx = static_cast<T*>(params.dx) + i * params.dx_stride;
                            const cpu::RowStats<T> stats{static_cast<const T*>(params.mean)[i],
                                                         static_cast<const T*>(params.rstd)[i]};
                            cpu::row_backward(x, stats, weight.data(), dy, dim, dx, dweight, dbias);
                          }
                        });
}

}  // namespace

void layer_norm_forward_cpu(const LayerNormParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

void layer_norm_backward_cpu(const LayerNormBackwardParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { backward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
