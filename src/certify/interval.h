// Intervals of tensors, rounded outwards.
#pragma once

#include <torch/types.h>

#include "certify/rounding.h"
#include "ops/torch/tensor_bounds.h"

namespace seqfuse::certify {

// lo <= x <= hi for each element; both of one shape and dtype.
using Interval = ops::bounds::TensorRange;

inline Rounding rounding_of(const Interval& x) {
  return Rounding::of(x.lo.scalar_type());
}

// [B, *shape] -> [B, 1, *shape], to meet rows [B, M, *shape] of linear functions.
inline at::Tensor over_rows(const at::Tensor& x) {
  return x.unsqueeze(1);
}

// Grows each end by a relative error of `units`, and by what growing loses.
Interval widened(const Interval& x, double units);
Interval intersected(const Interval& x, const Interval& y);

}  // namespace seqfuse::certify
