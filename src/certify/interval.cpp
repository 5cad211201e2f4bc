#include "certify/interval.h"

namespace seqfuse::certify {
using at::Tensor;

Split split(const Interval& x) {
  const Rounding rounding = x.rounding();
  const Tensor mid = x.lo * 0.5 + x.hi * 0.5;
  Tensor rad = at::maximum(x.hi - mid, mid - x.lo).clamp_min_(0);
  return {mid, rad.mul_(1 + 4 * rounding.unit).add_(rounding.tiny)};
}

Tensor magnitude(const Interval& x) {
  return at::maximum(x.lo.abs(), x.hi.abs());
}

Interval widened(const Interval& x, double units) {
  const Rounding rounding = x.rounding();
  const double relative = (units + 2) * rounding.unit;
  return {x.lo - (x.lo.abs() * relative + rounding.tiny),
          x.hi + (x.hi.abs() * relative + rounding.tiny)};
}

Interval widened(const Interval& x, const Tensor& units) {
  const Rounding rounding = x.rounding();
  const Tensor relative = (units + 4) * rounding.unit;
  return {x.lo - (x.lo.abs() * relative + rounding.tiny),
          x.hi + (x.hi.abs() * relative + rounding.tiny)};
}

Interval intersected(const Interval& x, const Interval& y) {
  return {at::maximum(x.lo, y.lo), at::minimum(x.hi, y.hi)};
}

Interval around(const Tensor& mid, const Tensor& rad) {
  // Of the difference, whose error is at most one unit of |mid| + rad.
  const Rounding rounding = Rounding::of(mid.scalar_type());
  const Tensor more = (mid.abs() + rad) * (3 * rounding.unit) + rad + rounding.tiny;
  return {mid - more, mid + more};
}

}  // namespace seqfuse::certify
