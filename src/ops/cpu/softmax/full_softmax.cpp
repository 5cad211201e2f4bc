#include "ops/kernels/softmax/full_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/cpu/dispatch.h"
#include "ops/cpu/row_loop.h"
#include "ops/cpu/row_vectors.h"
#include "ops/cpu/softmax_exp.h"

namespace seqfuse::ops {
namespace cpu {
namespace {

template <class T>
void softmax_rows(const FullSoftmaxParams& params) {
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  const int64_t columns = params.columns;
  const T inverse_temperature = static_cast<T>(1 / params.temperature);
  for_each_row(params.rows, columns, [&](int64_t i) {
    T* row = static_cast<T*>(params.products) + i * columns;
    const int64_t target = params.targets[i];
    // Leave the target out of the sum: 1 - p stays exact when p is near 1.
    const T positive = std::exchange(row[target], kLowest);
    if (params.seen) {
      for (int64_t k = params.seen_begin[i]; k < params.seen_end + i; ++k) {
        if (params.seen[k] >= 0) row[params.seen[k]] = kLowest;  // after row[target] was read
      }
    }
    const T highest = std::max(positive, largest(row, columns));
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = exp_or_zero((row[j] - highest) * inverse_temperature);
    }
    const T others = sum(row, columns);
    const T below = (positive - highest) * inverse_temperature;
    const T total = others + std::exp(below);
    if (params.losses) static_cast<T*>(params.losses)[i] = std::log(total) - below;
    if (!params.weights) return;
    const T scale = static_cast<const T*>(params.weights)[i] * inverse_temperature / total;
    for (int64_t j = 0; j < columns; ++j) row[j] *= scale;
    row[target] = -others * scale;
  });
}

}  // namespace
}  // namespace cpu

void full_softmax_cpu(const FullSoftmaxParams& params, DType dtype) {
  cpu::dispatch(dtype, [&](auto zero) { cpu::softmax_rows<decltype(zero)>(params); });
}

}  // namespace seqfuse::ops
