// The errors of floating-point arithmetic, which bounds make up for: they hold for real numbers.
//
// The model of arithmetic: +, -, *, / and square roots have a relative error of at most `unit`; a sum or
// product of matrices over n terms errs by at most gamma(n) times the sum of the terms' absolute values,
// in whatever order terms are added, with or without fused multiply-add (Higham, Accuracy and Stability
// of Numerical Algorithms, 3.1); exp, erf and tanh err by at most 8 units. Results that underflow lose
// less than `tiny` in a whole sum.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace seqfuse::certify {

struct Rounding {
  double unit, tiny;

  double gamma(int64_t terms) const {
    const double lost = static_cast<double>(terms) * unit;
    return lost / (1 - lost);
  }
  static Rounding of(at::ScalarType dtype) {
    return dtype == at::kDouble ? Rounding{0x1p-53, 1e-290} : Rounding{0x1p-24, 1e-30};
  }
};

}  // namespace seqfuse::certify
