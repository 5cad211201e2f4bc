#include "models/bert/joined_loops.h"

#include <ATen/Dispatch.h>

#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace seqfuse::models::bert {
namespace {

using at::Tensor;

constexpr int64_t kElementsOfTask = 1 << 14;

// One row: softmax of the scores that are seen.
template <class T>
void softmax_of_row(const T* scores, const bool* seen, T* to, int64_t columns) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < columns; ++j) {
    if (seen[j] && !(scores[j] <= largest)) largest = scores[j];  // NaN too
  }
  T sum = 0;
  for (int64_t j = 0; j < columns; ++j) {
    to[j] = seen[j] ? std::exp(scores[j] - largest) : T(0);
    sum += to[j];
  }
  const T scale = sum == 0 ? T(0) : 1 / sum;
  for (int64_t j = 0; j < columns; ++j) to[j] *= scale;
}

}  // namespace

Tensor bias_and_residual(const Tensor& x, const Tensor& bias, const Tensor& residual) {
  Tensor y = at::empty(x.sizes(), x.options());
  const int64_t rows = x.size(0), columns = x.size(1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "bias_and_residual", [&] {
    const auto *a = x.const_data_ptr<scalar_t>(), *b = bias.const_data_ptr<scalar_t>(),
               *r = residual.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    parallel_for(rows, kElementsOfTask / columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * columns;
        for (int64_t j = 0; j < columns; ++j) to[at + j] = a[at + j] + b[j] + r[at + j];
      }
    });
  });
  return y;
}

Tensor mask_and_softmax(const Tensor& scores, const Tensor& seen) {
  Tensor weights = at::empty(scores.sizes(), scores.options());
  const int64_t n = scores.size(-1), rows_of_group = scores.size(1) * n;
  const int64_t mask_rows = seen.size(0) == 1 ? 0 : n;
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "mask_and_softmax", [&] {
    const auto* from = scores.const_data_ptr<scalar_t>();
    const bool* mask = seen.const_data_ptr<bool>();
    auto* to = weights.mutable_data_ptr<scalar_t>();
    parallel_for(scores.size(0) * rows_of_group, n == 0 ? 1 : kElementsOfTask / n,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t mask_row = row / rows_of_group * mask_rows + row % n;
                     softmax_of_row(from + row * n, mask + mask_row * n, to + row * n, n);
                   }
                 });
  });
  return weights;
}

}  // namespace seqfuse::models::bert
