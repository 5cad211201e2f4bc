// Functions of one element: values, images of intervals, and lines below and above them.
#pragma once

#include <torch/types.h>

#include "certify/interval.h"

namespace seqfuse::certify {

using ops::bounds::curvature_bound;  // of |f''|, of tanh, gelu_erf and gelu_tanh
using ops::bounds::Function;  // relu, gelu_erf, gelu_tanh, tanh, exp, reciprocal, rsqrt, square

const char* name_of(Function function);

at::Tensor value(Function function, const at::Tensor& x);

// The image of x, rounded outwards. NaN for reciprocal and rsqrt unless x.lo > 0.
Interval image(Function function, const Interval& x);

// lower_slope x + lower_offset <= f(x) <= upper_slope x + upper_offset on an interval, for the real
// numbers that slopes and offsets are. Shapes and dtype of the interval.
//
// relu: the chord above; below it 0 or x, whichever leaves the smaller area. Convex functions: the chord
// above; below it the tangent in the middle, of exp at most 0.99 from the left end, where it is positive. tanh
// and gelu: of tangents and chords the one with the best value in the middle, by samples and a bound of the
// second derivative. The formulas are in ops/kernels/bounds/bound_rules.h.
using Lines = ops::bounds::TensorLines;
Lines lines(Function function, const Interval& x);

}  // namespace seqfuse::certify
