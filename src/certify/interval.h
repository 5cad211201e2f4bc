// Intervals of tensors, rounded outwards.
#pragma once

#include <torch/types.h>

#include "certify/rounding.h"

namespace seqfuse::certify {

// lo <= x <= hi for each element; both of one shape and dtype.
struct Interval {
  at::Tensor lo, hi;

  Rounding rounding() const { return Rounding::of(lo.scalar_type()); }
};

// [B, *shape] -> [B, 1, *shape], to meet rows [B, M, *shape] of linear functions.
inline at::Tensor over_rows(const at::Tensor& x) {
  return x.unsqueeze(1);
}

// |x - mid| <= rad for each x of an interval.
struct Split {
  at::Tensor mid, rad;
};

Split split(const Interval& x);
at::Tensor magnitude(const Interval& x);  // the largest |x|
// Grows by a relative error of `units` on each end, which may be a tensor, and by what growing loses.
Interval widened(const Interval& x, double units);
Interval widened(const Interval& x, const at::Tensor& units);
Interval intersected(const Interval& x, const Interval& y);
// [mid - rad, mid + rad], outwards.
Interval around(const at::Tensor& mid, const at::Tensor& rad);

}  // namespace seqfuse::certify
