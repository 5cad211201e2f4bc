// Norms fused with residual additions from their formulas, in float64.
#pragma once

#include <torch/types.h>

#include <vector>

#include "tests/oracles/layer_norm.h"

namespace seqfuse::oracle {

// The sum of terms [T, D] in order.
inline at::Tensor sum_of(const std::vector<at::Tensor>& terms) {
  at::Tensor sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i];
  return sum;
}

inline at::Tensor layer_norm_residual(const at::Tensor& x, const at::Tensor& residual,
                                      const at::Tensor& weight, const at::Tensor& bias,
                                      double eps) {
  return layer_norm(x, weight, bias, eps) + residual;
}

}  // namespace seqfuse::oracle
