// The exponential of logits minus their maximum.
#pragma once

#include "ops/cpu/simd_math.h"

namespace seqfuse::ops::cpu {

// e^x for x <= 0; 0 where it is too small to change a sum of at least 1. NaN stays NaN.
template <class T>
inline T exp_or_zero(T x) {
  return x < T{-87} ? T{0} : exp(x);
}

}  // namespace seqfuse::ops::cpu
