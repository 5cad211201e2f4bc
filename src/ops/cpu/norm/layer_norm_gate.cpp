#include "ops/kernels/norm/layer_norm_gate.h"

#include "ops/cpu/dispatch.h"
#include "ops/cpu/dropout_mask.h"
#include "ops/cpu/norm/layer_norm_rows.h"

namespace seqfuse::ops {
namespace {

// The dropout factors of a range of rows, drawn a few rows at a time; all 1 without dropout.
template <class T>
class RowFactors {
 public:
  RowFactors(double p, uint64_t seed, int64_t dim, int64_t end)
      : mask_(seed, p),
        drawn_(p > 0),
        dim_(dim),
        end_(end),
        rows_(std::max<int64_t>(1, 2048 / dim)) {
    factors_.assign((drawn_ ? rows_ : 1) * dim, 1);
  }

  // Factors [dim] of row i. Call with ascending i.
  const T* row(int64_t i) {
    if (!drawn_) return factors_.data();
    if (i >= first_ + rows_ || first_ < 0) {
      first_ = i;
      mask_.draw(i * dim_, std::min(rows_, end_ - i) * dim_, factors_.data());
    }
    return factors_.data() + (i - first_) * dim_;
  }

 private:
  cpu::DropoutMask<T> mask_;
  bool drawn_;
  int64_t dim_, end_, rows_;
  int64_t first_ = -1;
  std::vector<T> factors_;
};

template <class T>
void forward(const LayerNormGateParams& params) {
  const int64_t dim = params.dim;
  const cpu::Affine<T> weight(params.weight, dim, 1), bias(params.bias, dim, 0);
  parallel_for(params.rows, cpu::row_grain(dim), [&](int64_t begin, int64_t end) {
    RowFactors<T> factors(params.dropout, params.seed.value, dim, end);
    const T *w = weight.data(), *b = bias.data();
    for (int64_t i = begin; i < end; ++i) {
      const T* o = static_cast<const T*>(params.o) + i * params.o_stride;
      const T* u = static_cast<const T*>(params.u) + i * params.u_stride;
      const T* m = factors.row(i);
      T* y = static_cast<T*>(params.y) + i * params.y_stride;
      const auto [mean, rstd] = cpu::row_stats(o, dim, static_cast<T>(params.eps));
#pragma omp simd
      for (int64_t j = 0; j < dim; ++j) y[j] = u[j] * ((o[j] - mean) * rstd * w[j] + b[j]) * m[j];
      static_cast<T*>(params.mean)[i] = mean;
      static_cast<T*>(params.rstd)[i] = rstd;
    }
  });
}

template <class T>
void backward(const LayerNormGateBackwardParams& params) {
  const int64_t dim = params.dim;
  const cpu::Affine<T> weight(params.weight, dim, 1), bias(params.bias, dim, 0);
  cpu::sum_over_rows<T>(params.rows, dim, params.dweight, params.dbias,
                        [&](int64_t begin, int64_t end, T* dweight, T* dbias) {
                          RowFactors<T> factors(params.dropout, params.seed.value, dim, end);
                          std::vector<T> dl_row(dim);
                          const T *w = weight.data(), *b = bias.data();
                          for (int64_t i = begin; i < end; ++i) {
                            const T* o = static_cast<const T*>(params.o) + i * params.o_stride;
                            const T* u = static_cast<const T*>(params.u) + i * params.u_stride;
                            const T* dy = static_cast<const T*>(params.dy) + i * params.dy_stride;
                            const T* m = factors.row(i);
                            T* du = static_cast<T*>(params.du) + i * params.du_stride;
                            T* d_o = static_cast<T*>(params.d_o) + i * params.d_o_stride;
                            T* dl = dl_row.data();
                            const cpu::RowStats<T> stats{static_cast<const T*>(params.mean)[i],
                                                         static_cast<const T*>(params.rstd)[i]};
#pragma omp simd
                            for (int64_t j = 0; j < dim; ++j) {
                              const T masked = dy[j] * m[j];
                              du[j] = masked * ((o[j] - stats.mean) * stats.rstd * w[j] + b[j]);
                              dl[j] = masked * u[j];
                            }
                            cpu::row_backward(o, stats, w, dl, dim, d_o, dweight, dbias);
                          }
                        });
}

}  // namespace

void layer_norm_gate_forward_cpu(const LayerNormGateParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { forward<decltype(zero)>(params); });
}

void layer_norm_gate_backward_cpu(const LayerNormGateBackwardParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { backward<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
