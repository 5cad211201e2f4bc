// The steps of kernels/bounds over tensors, for src/certify only (not dispatcher operators; no gradients).
//
// Tensors are float64 or float32 of one dtype, on one device, [B, *shape] unless said otherwise; those that are
// not contiguous are copied. Results are new tensors.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <tuple>

#include "ops/kernels/bounds/bound_steps.h"

namespace seqfuse::ops::bounds {

struct TensorRange {
  at::Tensor lo, hi;
};

struct TensorSplit {
  at::Tensor mid, rad, magnitude;
  at::Tensor grown;  // rad + |mid| * gamma; undefined where gamma is 0
};
TensorSplit split(const TensorRange& x, double gamma);

// AroundStep. bias: [the last dimension]; may be undefined.
struct AroundOptions {
  double gamma = 0, scale = 1, rad_scale = 1, at_least = 0;
};
TensorRange around(const at::Tensor& mid, const at::Tensor& rad, const at::Tensor& bias,
                   const AroundOptions& options);

TensorRange sum(const TensorRange& x, const TensorRange& y);

// The image of f(x - shift). shift: as x, with a last dimension of 1, or undefined.
TensorRange image(Function function, const TensorRange& x, const at::Tensor& shift);
struct TensorLines {
  at::Tensor lower_slope, lower_offset, upper_slope, upper_offset;
};
TensorLines lines(Function function, const TensorRange& x, const at::Tensor& shift);

// ProductStep and ProductLinesStep. y: as x, or with a last dimension of 1. limit, bias: [the last dimension],
// may be undefined.
TensorRange product(const TensorRange& x, const TensorRange& y, const at::Tensor& limit,
                    const at::Tensor& bias);
struct TensorProductLines {
  at::Tensor slope_x, slope_y, mid, rad;
};
TensorProductLines product_lines(const TensorRange& x, const TensorRange& y, const TensorRange& own,
                                 const at::Tensor& bias, double gamma);

// bad: uint8 [B].
void mark_infinite(const TensorRange& x, const at::Tensor& bad);

// Over the last dimension. more: SoftmaxParams.
TensorRange softmax_image(const TensorRange& x, double more);

struct PencilTensors {
  at::Tensor mid, rad;  // [B, K + 1, *shape]; rad may be [B, 1, *shape]
  at::Tensor size;      // [B, *shape]
};
struct PencilBall {
  at::Tensor eps;  // [B], rounded upwards
  int64_t positions, coordinates;
  Norm norm;
  double norm_scale, norm_lost, reach_scale;
};
// Each returns the pencil with its size. known comes in as the known interval, contiguous, and goes out as
// what the pencil allows too.
//
// given: mid and rad are of products of matrices, contiguous, and get constants in their last rows: mid, of the
// last dimension or [B, *shape], rad and lost * lost_scale, [B, *shape]. All three may be undefined.
PencilTensors given_pencil(const at::Tensor& mid, const at::Tensor& rad, const PencilBall& ball,
                           const at::Tensor& constant_mid, const at::Tensor& constant_rad,
                           const at::Tensor& lost, double lost_scale, TensorRange& known);
PencilTensors sum_pencil(const PencilTensors& x, const PencilTensors& y, const PencilBall& ball,
                         TensorRange& known);
PencilTensors function_pencil(const PencilTensors& x, const TensorLines& lines,
                              const PencilBall& ball, TensorRange& known);
PencilTensors product_pencil(const PencilTensors& x, const PencilTensors& y,
                             const TensorProductLines& lines, const PencilBall& ball,
                             TensorRange& known);

// rows [B, M, *shape] on their way back. constants: float64 [chunks, 2, B, M], of kernels/bounds/bound_steps.h.
struct PassedRows {
  at::Tensor first, second, constants;
};
PassedRows rows_to_constants(const at::Tensor& rows, const at::Tensor& mid, const at::Tensor& rad);
// first: rows of x. magnitudes: of x and of f(x).
PassedRows rows_through_function(const at::Tensor& rows, const TensorLines& lines,
                                 const at::Tensor& x_magnitude, const at::Tensor& magnitude);
// first and second: rows of both factors, [B, M, *shape].
PassedRows rows_through_product(const at::Tensor& rows, const TensorProductLines& lines);

}  // namespace seqfuse::ops::bounds
