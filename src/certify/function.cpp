#include "certify/function.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace seqfuse::certify {
using at::Tensor;
namespace {

constexpr double kTanhScale = 0.7978845608028654, kTanhCubic = 0.044715;  // of gelu_tanh
// The minimum of each gelu and its place, to 1e-12.
struct Minimum {
  double x, value;
};
constexpr Minimum kGeluErf{-0.751791524694, -0.169971207480},
    kGeluTanh{-0.752461422071, -0.170040750571};
// Pieces of an interval. tanh is that of a pooler, one row; gelu is of every token.
constexpr int64_t kTanhPieces = 256, kGeluPieces = 64;

bool is_gelu(Function function) {
  return function == Function::gelu_erf || function == Function::gelu_tanh;
}

Tensor derivative(Function function, const Tensor& x) {
  switch (function) {
    case Function::gelu_erf:
      return 0.5 * (1 + at::erf(x * M_SQRT1_2)) +
             x * at::exp(x * x * -0.5) * (M_2_SQRTPI * M_SQRT1_2 / 2);
    case Function::gelu_tanh: {
      const Tensor t = at::tanh(kTanhScale * (x + kTanhCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kTanhScale * (1 + 3 * kTanhCubic * x * x);
    }
    case Function::tanh: {
      const Tensor t = at::tanh(x);
      return 1 - t * t;
    }
    case Function::exp:
      return at::exp(x);
    case Function::reciprocal:
      return -at::reciprocal(x * x);
    case Function::rsqrt:
      return at::rsqrt(x) / x * -0.5;
    case Function::square:
      return 2 * x;
    case Function::relu:
      break;
  }
  throw_error("relu has no derivative everywhere");
}

// What values and lines of f lose, beyond what offsets add: gelu has an absolute error like that of x.
Tensor lost(Function function, const Interval& x, const Tensor& slope, const Tensor& values) {
  const Rounding rounding = x.rounding();
  Tensor units = values.abs() + slope.abs() * magnitude(x);
  if (is_gelu(function)) units = units + magnitude(x);
  if (function == Function::exp) units = units * (1 + 0.25 * magnitude(x));
  return units * (16 * rounding.unit) + rounding.tiny;
}

// Where an interval is so narrow that differences of f say nothing.
Tensor narrow(const Interval& x) {
  const Rounding rounding = x.rounding();
  return (x.hi - x.lo) <= magnitude(x) * (256 * rounding.unit) + 64 * rounding.tiny;
}

Tensor middle(const Interval& x) {
  return x.lo * 0.5 + x.hi * 0.5;
}

Lines relu_lines(const Interval& x) {
  const Rounding rounding = x.rounding();
  const Tensor on = x.lo >= 0, off = x.hi <= 0;
  const Tensor zero = at::zeros_like(x.lo), one = at::ones_like(x.lo);
  const Tensor width = (x.hi - x.lo).clamp_min(rounding.tiny);
  const Tensor chord = at::where(on, one, at::where(off, zero, x.hi / width));
  const Tensor ends = at::maximum(x.hi - chord * x.hi, -chord * x.lo);
  const Tensor offset = ends + (magnitude(x) * (8 * rounding.unit) + rounding.tiny);
  const Tensor below =
      at::where(on, one, at::where(off, zero, (x.hi > -x.lo).to(x.lo.scalar_type())));
  return {below, zero, chord, at::where(on.logical_or(off), zero, offset)};
}

Lines convex_lines(Function function, const Interval& x) {
  const Tensor f_lo = value(function, x.lo), f_hi = value(function, x.hi);
  Tensor touch = middle(x);
  if (function == Function::exp) touch = at::minimum(touch, x.lo + 0.99);
  const Tensor below = derivative(function, touch), f_touch = value(function, touch);
  const Tensor chord = at::where(narrow(x), below, (f_hi - f_lo) / (x.hi - x.lo));
  const Tensor largest = at::maximum(f_lo.abs(), f_hi.abs());
  return {
      below, f_touch - below * touch - lost(function, x, below, largest), chord,
      at::maximum(f_lo - chord * x.lo, f_hi - chord * x.hi) + lost(function, x, chord, largest)};
}

// A bound of |f''| on an interval; smaller far from 0.
Tensor curvature(Function function, const Interval& x) {
  const Tensor least = at::maximum(x.lo, -x.hi).clamp_min(0);  // of |x|
  if (function == Function::tanh) {
    const Tensor t = at::tanh(least);
    return ((1 - t * t) * 2 + 8 * x.rounding().unit).clamp_max(curvature_bound(function));
  }
  if (function ==
      Function::gelu_erf) {  // phi(x) |2 - x^2|: falls up to sqrt(2), is 0.10799 at 2, then falls
    const Tensor square = least * least;
    const Tensor density = at::exp(square * -0.5) * (M_2_SQRTPI * M_SQRT1_2 / 2);
    const Tensor tail = at::where(least < 2, at::full_like(least, 0.1081), density * (square - 2));
    return at::maximum(density * (2 - square), tail) + 8 * x.rounding().unit;
  }
  return at::full_like(x.lo, curvature_bound(function));
}

// Any function with a bounded second derivative: f - slope x between two samples is below and above them
// by at most curvature * step^2 / 8.
Lines sampled_lines(Function function, const Interval& x) {
  const Rounding rounding = x.rounding();
  const int64_t pieces = function == Function::tanh ? kTanhPieces : kGeluPieces;
  const Tensor width = x.hi - x.lo, mid = middle(x), is_narrow = narrow(x);
  std::vector<int64_t> shape(static_cast<size_t>(x.lo.dim()) + 1, 1);
  shape[0] = pieces + 1;
  const Tensor places = at::arange(pieces + 1, x.lo.options()).div_(pieces).view(shape);
  const Tensor points = x.lo + width * places, values = value(function, points);
  const Tensor largest = values.abs().amax(0);
  const Tensor step = width / static_cast<double>(pieces) + magnitude(x) * (8 * rounding.unit);
  const Tensor between = step * step * curvature(function, x) * (1.001 / 8);

  const Tensor tangent = derivative(function, mid);
  const auto known = [&](const Tensor& slope) { return at::where(is_narrow, tangent, slope); };
  const Tensor first = points.narrow(0, 0, pieces), later = points.narrow(0, 1, pieces);
  const Tensor to_end = (values[pieces] - values.narrow(0, 0, pieces)) / (x.hi - first);
  const Tensor from_start = (values.narrow(0, 1, pieces) - values[0]) / (later - x.lo);

  Lines best;
  const auto try_slope = [&](const Tensor& slope, bool lower) {
    const Tensor rest = values - slope * points;
    const Tensor more = between + lost(function, x, slope, largest);
    const Tensor offset = lower ? rest.amin(0) - more : rest.amax(0) + more;
    Tensor& kept_slope = lower ? best.lower_slope : best.upper_slope;
    Tensor& kept_offset = lower ? best.lower_offset : best.upper_offset;
    if (!kept_slope.defined()) {
      kept_slope = slope;
      kept_offset = offset;
      return;
    }
    const Tensor gain = (slope - kept_slope) * mid + (offset - kept_offset);
    const Tensor better = lower ? gain > 0 : gain < 0;
    kept_slope = at::where(better, slope, kept_slope);
    kept_offset = at::where(better, offset, kept_offset);
  };
  for (const bool lower : {true, false}) {
    try_slope(tangent, lower);
    try_slope(known(lower ? to_end.amax(0) : to_end.amin(0)), lower);
    try_slope(known(lower ? from_start.amin(0) : from_start.amax(0)), lower);
  }
  return best;
}

}  // namespace

const char* name_of(Function function) {
  constexpr std::array kNames = {"relu", "gelu",       "gelu_new", "tanh",
                                 "exp",  "reciprocal", "rsqrt",    "square"};
  return kNames.at(static_cast<size_t>(function));
}

double curvature_bound(Function function) {
  switch (function) {
    case Function::gelu_erf:
      return 0.79789;  // 2 phi(0)
    case Function::gelu_tanh:
      return 0.81;
    case Function::tanh:
      return 0.76981;  // 4 / (3 sqrt(3))
    default:
      throw_error("{} has no bound of its second derivative", name_of(function));
  }
}

Tensor value(Function function, const Tensor& x) {
  switch (function) {
    case Function::relu:
      return at::relu(x);
    case Function::gelu_erf:
      return at::gelu(x, "none");
    case Function::gelu_tanh:
      return at::gelu(x, "tanh");
    case Function::tanh:
      return at::tanh(x);
    case Function::exp:
      return at::exp(x);
    case Function::reciprocal:
      return at::reciprocal(x);
    case Function::rsqrt:
      return at::reciprocal(at::sqrt(x));
    case Function::square:
      return x * x;
  }
  throw_error("an unknown function");
}

Interval image(Function function, const Interval& x) {
  const Tensor at_lo = value(function, x.lo), at_hi = value(function, x.hi);
  switch (function) {
    case Function::relu:
      return {at_lo, at_hi};
    case Function::tanh: {
      const Interval wide = widened({at_lo, at_hi}, 16);
      return {wide.lo.clamp(-1, 1), wide.hi.clamp(-1, 1)};
    }
    case Function::exp: {
      const Interval of_ends{at_lo, at_hi};
      const Interval wide = {widened({at_lo, at_lo}, 16 + 2 * x.lo.abs()).lo.clamp_min(0),
                             widened({at_hi, at_hi}, 16 + 2 * x.hi.abs()).hi};
      return wide;
    }
    case Function::reciprocal:
    case Function::rsqrt: {
      const Interval result = widened({at_hi, at_lo}, 8);
      const Tensor none = at::full_like(at_lo, std::numeric_limits<double>::quiet_NaN());
      return {at::where(x.lo > 0, result.lo, none), at::where(x.lo > 0, result.hi, none)};
    }
    case Function::square: {
      const Tensor crosses = x.lo.le(0).logical_and(x.hi.ge(0));
      const Tensor least = at::where(crosses, at::zeros_like(at_lo), at::minimum(at_lo, at_hi));
      const Interval wide = widened({least, at::maximum(at_lo, at_hi)}, 4);
      return {wide.lo.clamp_min(0), wide.hi};
    }
    case Function::gelu_erf:
    case Function::gelu_tanh: {
      const Minimum& minimum = function == Function::gelu_erf ? kGeluErf : kGeluTanh;
      // Around the rounded place of the minimum f differs from it by less than 1e-12.
      const Tensor crosses = x.lo.le(minimum.x).logical_and(x.hi.ge(minimum.x));
      const Tensor more = magnitude(x) * (16 * x.rounding().unit) + 2e-12;
      const Tensor least =
          at::where(crosses, at::full_like(at_lo, minimum.value), at::minimum(at_lo, at_hi));
      return {least - more, at::maximum(at_lo, at_hi) + more};
    }
  }
  throw_error("an unknown function");
}

Lines lines(Function function, const Interval& x) {
  switch (function) {
    case Function::relu:
      return relu_lines(x);
    case Function::tanh:
    case Function::gelu_erf:
    case Function::gelu_tanh:
      return sampled_lines(function, x);
    default:
      return convex_lines(function, x);
  }
}

}  // namespace seqfuse::certify
