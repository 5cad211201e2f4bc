#include "ops/kernels/bounds/bound_steps.h"

#include <algorithm>

#include "ops/cpu/row_loop.h"

namespace seqfuse::ops::bounds {
namespace {

constexpr int64_t kBlock = 64;  // elements of a pencil whose rows are walked together

template <Pencil kind, class T>
void pencil_block(const PencilParams<T>& params, int64_t batch, int64_t begin) {
  const int64_t count = std::min(kBlock, params.elements - begin);
  const int64_t width = params.coordinates / params.positions;
  PencilElement<T> elements[kBlock];
  T down[kBlock] = {}, up[kBlock] = {}, low[kBlock], high[kBlock];
  for (int64_t i = 0; i < count; ++i) elements[i] = pencil_element<kind>(params, batch, begin + i);
  for (int64_t position = 0; position < params.positions; ++position) {
    std::fill_n(low, count, T(0));
    std::fill_n(high, count, T(0));
    for (int64_t k = position * width; k < (position + 1) * width; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        const PencilRow<T> row = pencil_row<kind>(params, elements[i], batch, k, begin + i);
        if constexpr (kind != Pencil::given) store_row(params, row, batch, k, begin + i);
        low[i] = norm_with(params.norm, low[i], row.mid - row.rad);
        high[i] = norm_with(params.norm, high[i], row.mid + row.rad);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      down[i] += norm_ended(params, low[i]);
      up[i] += norm_ended(params, high[i]);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    PencilRow<T> last = pencil_row<kind>(params, elements[i], batch, params.coordinates, begin + i);
    last.mid += elements[i].mid;
    last.rad += elements[i].rad;
    end_element(params, last, down[i], up[i], batch, begin + i);
  }
}

template <Pencil kind, class T>
void run_pencil(const PencilParams<T>& params) {
  const int64_t blocks = (params.elements + kBlock - 1) / kBlock;
  cpu::for_each_row(params.batch * blocks, params.coordinates * kBlock, [&](int64_t i) {
    pencil_block<kind>(params, i / blocks, i % blocks * kBlock);
  });
}

template <Backward kind, class T>
void run_rows(const BackwardParams<T>& params) {
  const int64_t functions = params.batch * params.functions;
  cpu::for_each_row(functions, params.elements, [&](int64_t row) {
    const int64_t of_batch = row / params.functions * params.elements;
    for (int64_t begin = 0; begin < params.elements; begin += kBackwardChunk) {
      double value = 0, lost = 0;
      const int64_t end = std::min(begin + kBackwardChunk, params.elements);
      for (int64_t e = begin; e < end; ++e) {
        const int64_t at = row * params.elements + e;
        const RowConstant<T> constant = backward_element<kind>(params, of_batch + e, at);
        add_constant(params, constant, params.rows[at], value, lost);
      }
      double* to = params.constants + 2 * (begin / kBackwardChunk) * functions + row;
      to[0] = value;
      to[functions] = lost;
    }
  });
}

}  // namespace

template <class Step>
void each_element_cpu(const Step& step, int64_t elements) {
  parallel_for(elements, 8192, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) step(i);
  });
}

template <class T>
void softmax_image_cpu(const SoftmaxParams<T>& params) {
  cpu::for_each_row(params.rows, params.keys * 16, [&](int64_t row) {
    const T *x_lo = params.x_lo + row * params.keys, *x_hi = params.x_hi + row * params.keys;
    T top = x_hi[0], sum_least = 0, sum_most = 0;
    for (int64_t j = 0; j < params.keys; ++j) top = larger(top, x_hi[j]);
    const auto least = [&](int64_t j) { return softmax_power(x_lo[j], top, T(-1)); };
    const auto most = [&](int64_t j) {
      return softmax_power(x_hi[j], top, T(1)) + Arithmetic<T>::tiny;
    };
    for (int64_t j = 0; j < params.keys; ++j) {
      sum_least += least(j);
      sum_most += most(j);
    }
    for (int64_t j = 0; j < params.keys; ++j) {
      const Range<T> y = softmax_value(least(j), most(j), sum_least, sum_most, params.more);
      params.lo[row * params.keys + j] = y.lo;
      params.hi[row * params.keys + j] = y.hi;
    }
  });
}

template <class T>
void pencil_cpu(Pencil kind, const PencilParams<T>& params) {
  switch (kind) {
    case Pencil::given:
      return run_pencil<Pencil::given>(params);
    case Pencil::sum:
      return run_pencil<Pencil::sum>(params);
    case Pencil::function:
      return run_pencil<Pencil::function>(params);
    case Pencil::product:
      return run_pencil<Pencil::product>(params);
  }
}

template <class T>
void backward_rows_cpu(Backward kind, const BackwardParams<T>& params) {
  switch (kind) {
    case Backward::constants:
      return run_rows<Backward::constants>(params);
    case Backward::function:
      return run_rows<Backward::function>(params);
    case Backward::product:
      return run_rows<Backward::product>(params);
  }
}

#define SEQFUSE_STEP(...) template void each_element_cpu(const __VA_ARGS__&, int64_t);
#define SEQFUSE_BOUNDS_OF(T)                                \
  SEQFUSE_EACH_BOUND_STEP(SEQFUSE_STEP, T)                  \
  template void softmax_image_cpu(const SoftmaxParams<T>&); \
  template void pencil_cpu(Pencil, const PencilParams<T>&); \
  template void backward_rows_cpu(Backward, const BackwardParams<T>&);
SEQFUSE_BOUNDS_OF(double)
SEQFUSE_BOUNDS_OF(float)
#undef SEQFUSE_BOUNDS_OF
#undef SEQFUSE_STEP

}  // namespace seqfuse::ops::bounds
