// Rows scaled to unit length, in float64.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cmath>

namespace seqfuse::oracle {

inline at::Tensor l2_normalize(const at::Tensor& x, double eps) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  const auto in = x.accessor<double, 2>();
  auto out = y.accessor<double, 2>();
  for (int64_t i = 0; i < x.size(0); ++i) {
    double squares = 0;
    for (int64_t j = 0; j < x.size(1); ++j) squares += in[i][j] * in[i][j];
    for (int64_t j = 0; j < x.size(1); ++j)
      out[i][j] = in[i][j] / std::max(std::sqrt(squares), eps);
  }
  return y;
}

}  // namespace seqfuse::oracle
