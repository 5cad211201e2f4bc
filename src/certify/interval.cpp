#include "certify/interval.h"

namespace seqfuse::certify {

Interval widened(const Interval& x, double units) {
  const Rounding rounding = rounding_of(x);
  const double relative = (units + 2) * rounding.unit;
  return {x.lo - (x.lo.abs() * relative + rounding.tiny),
          x.hi + (x.hi.abs() * relative + rounding.tiny)};
}

Interval intersected(const Interval& x, const Interval& y) {
  return {at::maximum(x.lo, y.lo), at::minimum(x.hi, y.hi)};
}

}  // namespace seqfuse::certify
