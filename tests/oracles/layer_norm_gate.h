// The gate of an HSTU layer by its formula, in float64.
#pragma once

#include "tests/oracles/dropout.h"
#include "tests/oracles/layer_norm.h"

namespace seqfuse::oracle {

inline at::Tensor layer_norm_gate(const at::Tensor& o, const at::Tensor& u,
                                  const at::Tensor& weight, const at::Tensor& bias, double eps,
                                  double p, uint64_t seed) {
  const at::Tensor factors = dropout_factors(o.numel(), p, seed).view(o.sizes());
  return u * layer_norm(o, weight, bias, eps) * factors;
}

}  // namespace seqfuse::oracle
