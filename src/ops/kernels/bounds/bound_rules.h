// Intervals and linear bounds of one number, for the host and for GPUs. Results hold for real numbers: each
// one grows by what floating point may lose.
//
// The model of arithmetic: +, -, *, / and square roots have a relative error of at most `unit`, fused or
// not; exp, erf and tanh of at most 8 units. Results that underflow lose less than `tiny` in a whole sum.
// NaN stays NaN: `larger` and `smaller` pass it on.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/kernels/common/host_device.h"

namespace seqfuse::ops::bounds {

template <class T>
struct Arithmetic;
template <>
struct Arithmetic<double> {
  static constexpr double unit = 0x1p-53, tiny = 1e-290;
};
template <>
struct Arithmetic<float> {
  static constexpr float unit = 0x1p-24f, tiny = 1e-30f;
};

template <class T>
SEQFUSE_HOST_DEVICE T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
SEQFUSE_HOST_DEVICE T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
SEQFUSE_HOST_DEVICE T size_of(T x) {
  return x < 0 ? -x : x;
}

template <class T>
struct Range {
  T lo, hi;
};

template <class T>
SEQFUSE_HOST_DEVICE T magnitude(const Range<T>& x) {
  return larger(size_of(x.lo), size_of(x.hi));
}

// |x - mid| <= rad for each x of a range.
template <class T>
struct Middle {
  T mid, rad;
};

template <class T>
SEQFUSE_HOST_DEVICE Middle<T> middle_of(const Range<T>& x) {
  const T mid = x.lo * T(0.5) + x.hi * T(0.5);
  const T rad = larger(larger(x.hi - mid, mid - x.lo), T(0));
  return {mid, rad * (1 + 4 * Arithmetic<T>::unit) + Arithmetic<T>::tiny};
}

// Both ends move outwards by `units` units of themselves, and by what moving loses.
template <class T>
SEQFUSE_HOST_DEVICE T lowered(T x, T units) {
  return x - (size_of(x) * ((units + 4) * Arithmetic<T>::unit) + Arithmetic<T>::tiny);
}
template <class T>
SEQFUSE_HOST_DEVICE T raised(T x, T units) {
  return x + (size_of(x) * ((units + 4) * Arithmetic<T>::unit) + Arithmetic<T>::tiny);
}
template <class T>
SEQFUSE_HOST_DEVICE Range<T> widened(const Range<T>& x, T units) {
  return {lowered(x.lo, units), raised(x.hi, units)};
}

// [mid - rad, mid + rad]. The error of a difference is at most one unit of |mid| + rad.
template <class T>
SEQFUSE_HOST_DEVICE Range<T> around(T mid, T rad) {
  const T more = (size_of(mid) + rad) * (3 * Arithmetic<T>::unit) + rad + Arithmetic<T>::tiny;
  return {mid - more, mid + more};
}

template <class T>
SEQFUSE_HOST_DEVICE Range<T> product_of(const Range<T>& x, const Range<T>& y) {
  const T a = x.lo * y.lo, b = x.lo * y.hi, c = x.hi * y.lo, d = x.hi * y.hi;
  return widened(
      Range<T>{smaller(smaller(a, b), smaller(c, d)), larger(larger(a, b), larger(c, d))}, T(2));
}

// slope x + offset.
template <class T>
struct Line {
  T slope, offset;
};

// lower <= f <= upper on a range, for the real numbers that slopes and offsets are.
template <class T>
struct Lines {
  Line<T> lower, upper;
};

enum class Function : int { relu, gelu_erf, gelu_tanh, tanh, exp, reciprocal, rsqrt, square };

SEQFUSE_HOST_DEVICE constexpr bool is_gelu(Function f) {
  return f == Function::gelu_erf || f == Function::gelu_tanh;
}
// Their lines come from samples, those of others from a formula.
SEQFUSE_HOST_DEVICE constexpr bool is_sampled(Function f) {
  return is_gelu(f) || f == Function::tanh;
}
// tanh is that of a pooler, one row; gelu is of every token.
SEQFUSE_HOST_DEVICE constexpr int samples_of(Function f) {
  return f == Function::tanh ? 256 : 64;
}
// Bounds |f''|: 2 phi(0), 4 / (3 sqrt(3)).
SEQFUSE_HOST_DEVICE constexpr double curvature_bound(Function f) {
  return f == Function::gelu_erf ? 0.79789 : f == Function::gelu_tanh ? 0.81 : 0.76981;
}

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kDensityAtZero = 0.39894228040143267794;  // 1 / sqrt(2 pi)
constexpr double kGeluScale = 0.7978845608028654, kGeluCubic = 0.044715;

template <Function f, class T>
SEQFUSE_HOST_DEVICE T value_of(T x) {
  if constexpr (f == Function::relu) {
    return x < 0 ? T(0) : x;
  } else if constexpr (f == Function::gelu_erf) {
    return x * T(0.5) * (1 + std::erf(x * T(kSqrtHalf)));
  } else if constexpr (f == Function::gelu_tanh) {
    return x * T(0.5) * (1 + std::tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x)));
  } else if constexpr (f == Function::tanh) {
    return std::tanh(x);
  } else if constexpr (f == Function::exp) {
    return std::exp(x);
  } else if constexpr (f == Function::reciprocal) {
    return 1 / x;
  } else if constexpr (f == Function::rsqrt) {
    return 1 / std::sqrt(x);
  } else {
    return x * x;
  }
}

// Not of relu.
template <Function f, class T>
SEQFUSE_HOST_DEVICE T derivative_of(T x) {
  if constexpr (f == Function::gelu_erf) {
    return T(0.5) * (1 + std::erf(x * T(kSqrtHalf))) +
           x * std::exp(x * x * T(-0.5)) * T(kDensityAtZero);
  } else if constexpr (f == Function::gelu_tanh) {
    const T t = std::tanh(T(kGeluScale) * (x + T(kGeluCubic) * x * x * x));
    return T(0.5) * (1 + t) +
           T(0.5) * x * (1 - t * t) * T(kGeluScale) * (1 + 3 * T(kGeluCubic) * x * x);
  } else if constexpr (f == Function::tanh) {
    const T t = std::tanh(x);
    return 1 - t * t;
  } else if constexpr (f == Function::exp) {
    return std::exp(x);
  } else if constexpr (f == Function::reciprocal) {
    return -1 / (x * x);
  } else if constexpr (f == Function::rsqrt) {
    return T(-0.5) / (std::sqrt(x) * x);
  } else {
    return 2 * x;
  }
}

// The image of x. NaN for reciprocal and rsqrt unless x.lo > 0.
template <Function f, class T>
SEQFUSE_HOST_DEVICE Range<T> image_of(const Range<T>& x) {
  const T at_lo = value_of<f>(x.lo), at_hi = value_of<f>(x.hi);
  if constexpr (f == Function::relu) {
    return {at_lo, at_hi};
  } else if constexpr (f == Function::tanh) {
    return {smaller(larger(lowered(at_lo, T(16)), T(-1)), T(1)),
            smaller(larger(raised(at_hi, T(16)), T(-1)), T(1))};
  } else if constexpr (f == Function::exp) {
    return {larger(lowered(at_lo, 16 + 2 * size_of(x.lo)), T(0)),
            raised(at_hi, 16 + 2 * size_of(x.hi))};
  } else if constexpr (f == Function::reciprocal || f == Function::rsqrt) {
    const T none = static_cast<T>(NAN);
    const bool exists = x.lo > 0;
    return {exists ? lowered(at_hi, T(8)) : none, exists ? raised(at_lo, T(8)) : none};
  } else if constexpr (f == Function::square) {
    const bool crosses = x.lo <= 0 && x.hi >= 0;
    const T least = crosses ? T(0) : smaller(at_lo, at_hi);
    return {larger(lowered(least, T(4)), T(0)), raised(larger(at_lo, at_hi), T(4))};
  } else {
    // The minimum and its place, to 1e-12. Around the rounded place f differs from it by less.
    const T place = T(f == Function::gelu_erf ? -0.751791524694 : -0.752461422071);
    const T minimum = T(f == Function::gelu_erf ? -0.169971207480 : -0.170040750571);
    const bool crosses = x.lo <= place && x.hi >= place;
    const T more = magnitude(x) * (16 * Arithmetic<T>::unit) + T(2e-12);
    const T least = crosses ? minimum : smaller(at_lo, at_hi);
    return {least - more, larger(at_lo, at_hi) + more};
  }
}

// Bounds the rounding errors of values and lines. gelu has an absolute error like that of x.
template <Function f, class T>
SEQFUSE_HOST_DEVICE T lost_by(const Range<T>& x, T slope, T largest) {
  const T size = magnitude(x);
  T units = largest + size_of(slope) * size;
  if constexpr (is_gelu(f)) units += size;
  if constexpr (f == Function::exp) units *= 1 + T(0.25) * size;
  return units * (16 * Arithmetic<T>::unit) + Arithmetic<T>::tiny;
}

// True for ranges so narrow that differences of f are only rounding errors.
template <class T>
SEQFUSE_HOST_DEVICE bool is_narrow(const Range<T>& x) {
  return x.hi - x.lo <= magnitude(x) * (256 * Arithmetic<T>::unit) + 64 * Arithmetic<T>::tiny;
}

template <class T>
SEQFUSE_HOST_DEVICE Lines<T> relu_lines(const Range<T>& x) {
  if (x.lo >= 0) return {{1, 0}, {1, 0}};
  if (x.hi <= 0) return {{0, 0}, {0, 0}};
  const T chord = x.hi / larger(x.hi - x.lo, Arithmetic<T>::tiny);
  const T offset = larger(x.hi - chord * x.hi, -chord * x.lo) +
                   magnitude(x) * (8 * Arithmetic<T>::unit) + Arithmetic<T>::tiny;
  return {{x.hi > -x.lo ? T(1) : T(0), 0}, {chord, offset}};
}

// The chord above; below it the tangent in the middle, of exp at most 0.99 from the left end, where it is
// positive.
template <Function f, class T>
SEQFUSE_HOST_DEVICE Lines<T> convex_lines(const Range<T>& x) {
  const T f_lo = value_of<f>(x.lo), f_hi = value_of<f>(x.hi);
  T touch = x.lo * T(0.5) + x.hi * T(0.5);
  if constexpr (f == Function::exp) touch = smaller(touch, x.lo + T(0.99));
  const T below = derivative_of<f>(touch), f_touch = value_of<f>(touch);
  const T chord = is_narrow(x) ? below : (f_hi - f_lo) / (x.hi - x.lo);
  const T largest = larger(size_of(f_lo), size_of(f_hi));
  return {
      {below, f_touch - below * touch - lost_by<f>(x, below, largest)},
      {chord, larger(f_lo - chord * x.lo, f_hi - chord * x.hi) + lost_by<f>(x, chord, largest)}};
}

// A bound of |f''| on a range; smaller far from 0.
template <Function f, class T>
SEQFUSE_HOST_DEVICE T curvature_of(const Range<T>& x) {
  const T least = larger(larger(x.lo, -x.hi), T(0));  // of |x|
  if constexpr (f == Function::tanh) {
    const T t = std::tanh(least);
    return smaller((1 - t * t) * 2 + 8 * Arithmetic<T>::unit, T(curvature_bound(f)));
  } else if constexpr (f == Function::gelu_erf) {
    // phi(x) |2 - x^2|: falls up to sqrt(2), is 0.10799 at 2, then falls.
    const T square = least * least, density = std::exp(square * T(-0.5)) * T(kDensityAtZero);
    const T tail = least < 2 ? T(0.1081) : density * (square - 2);
    return larger(density * (2 - square), tail) + 8 * Arithmetic<T>::unit;
  } else {
    return T(curvature_bound(f));
  }
}

// Takes the tangent in the middle or a line of the hull through an end, whichever has the best value in the
// middle. Between two samples, f - slope x leaves their values by at most curvature * step^2 / 8.
template <Function f, class T>
SEQFUSE_HOST_DEVICE Lines<T> sampled_lines(const Range<T>& x) {
  constexpr int kPieces = samples_of(f);
  const T width = x.hi - x.lo, mid = x.lo * T(0.5) + x.hi * T(0.5);
  const T step = width / kPieces + magnitude(x) * (8 * Arithmetic<T>::unit);
  const T between = step * step * curvature_of<f>(x) * T(1.001 / 8);
  const auto point = [&](int i) { return x.lo + width * (T(i) / kPieces); };
  const T first = value_of<f>(point(0)), last = value_of<f>(point(kPieces));
  const T tangent = derivative_of<f>(mid);
  // Slopes 0: tangent; 1 and 2: lower, 3 and 4: upper, of the lines through the right and the left end.
  T slopes[5] = {tangent, tangent, tangent, tangent, tangent};
  T largest = larger(size_of(first), size_of(last));
  if (!is_narrow(x)) {
    for (int i = 0; i <= kPieces; ++i) {
      const T at = point(i), y = value_of<f>(at);
      largest = larger(largest, size_of(y));
      if (i < kPieces) {
        const T to_end = (last - y) / (x.hi - at);
        slopes[1] = i == 0 ? to_end : larger(slopes[1], to_end);
        slopes[3] = i == 0 ? to_end : smaller(slopes[3], to_end);
      }
      if (i > 0) {
        const T from_start = (y - first) / (at - x.lo);
        slopes[2] = i == 1 ? from_start : smaller(slopes[2], from_start);
        slopes[4] = i == 1 ? from_start : larger(slopes[4], from_start);
      }
    }
  }
  T least[3], most[3];  // of f - slope x: of slopes 0, 1, 2 and of 0, 3, 4
  for (int i = 0; i <= kPieces; ++i) {
    const T at = point(i), y = value_of<f>(at);
    largest = larger(largest, size_of(y));
    for (int s = 0; s < 3; ++s) {
      const T low = y - slopes[s] * at, high = y - slopes[s == 0 ? 0 : s + 2] * at;
      least[s] = i == 0 ? low : smaller(least[s], low);
      most[s] = i == 0 ? high : larger(most[s], high);
    }
  }
  Lines<T> best{};
  for (int s = 0; s < 3; ++s) {
    const T below = slopes[s], above = slopes[s == 0 ? 0 : s + 2];
    const Line<T> lower{below, least[s] - (between + lost_by<f>(x, below, largest))};
    const Line<T> upper{above, most[s] + (between + lost_by<f>(x, above, largest))};
    if (s == 0 || (lower.slope - best.lower.slope) * mid + (lower.offset - best.lower.offset) > 0) {
      best.lower = lower;
    }
    if (s == 0 || (upper.slope - best.upper.slope) * mid + (upper.offset - best.upper.offset) < 0) {
      best.upper = upper;
    }
  }
  return best;
}

template <Function f, class T>
SEQFUSE_HOST_DEVICE Lines<T> lines_of(const Range<T>& x) {
  if constexpr (f == Function::relu) {
    return relu_lines(x);
  } else if constexpr (is_sampled(f)) {
    return sampled_lines<f>(x);
  } else {
    return convex_lines<f>(x);
  }
}

// Lines of f(x - shift), from those of f: offsets move by slope * shift.
template <class T>
SEQFUSE_HOST_DEVICE T moved_offset(const Line<T>& line, T shift, T direction) {
  const T step = line.slope * shift;
  return line.offset - step +
         (size_of(line.offset) + size_of(step)) * (direction * 4 * Arithmetic<T>::unit);
}

// exp(x - top) of a softmax, downwards (-1) or upwards (1).
template <class T>
SEQFUSE_HOST_DEVICE T softmax_power(T x, T top, T direction) {
  const T argument = x - top;
  const T units = (16 + 4 * size_of(argument)) * (direction * Arithmetic<T>::unit);
  return larger(std::exp(argument) * (1 + units), T(0));
}

// A value of a softmax: the least one has its own score at the lower end and all others at the upper end.
// more: what a sum over the row loses.
template <class T>
SEQFUSE_HOST_DEVICE Range<T> softmax_value(T least, T most, T sum_least, T sum_most, T more) {
  const T others_most = larger(sum_most - most, T(0)) + sum_most * more;
  const T others_least = larger(sum_least - least - sum_least * more, T(0));
  const T lo = lowered(least / (least + others_most + Arithmetic<T>::tiny), T(8));
  const T hi = raised(most / (most + others_least), T(8));
  return {smaller(larger(lo, T(0)), T(1)), smaller(larger(hi, T(0)), T(1))};
}

}  // namespace seqfuse::ops::bounds
