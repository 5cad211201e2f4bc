#include "ops/torch/tensor_bounds.h"

#include <algorithm>
#include <vector>

#include "ops/torch/cuda.h"

namespace seqfuse::ops::bounds {
namespace {

// body(T{}) with T = float or double.
template <class Body>
void with_type(const at::Tensor& x, Body&& body) {
  TORCH_CHECK(x.scalar_type() == at::kDouble || x.scalar_type() == at::kFloat,
              "bounds are computed in float64 and float32, not in ", x.scalar_type());
  if (x.scalar_type() == at::kDouble) {
    body(double{});
  } else {
    body(float{});
  }
}

template <class T>
const T* input(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<T>() : nullptr;
}
template <class T>
T* output(const at::Tensor& x) {
  return x.defined() ? x.mutable_data_ptr<T>() : nullptr;
}

at::Tensor packed(const at::Tensor& x) {
  return x.defined() ? x.contiguous() : x;
}
TensorRange packed(const TensorRange& x) {
  return {x.lo.contiguous(), x.hi.contiguous()};
}
at::Tensor like(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options());
}

template <class Step>
void run(const at::Tensor& x, const Step& step) {
  SEQFUSE_RUN(x, each_element, step, x.numel());
}

// step(Constant of the function).
template <class Body>
void with_function(Function function, Body&& body) {
  switch (function) {
    case Function::relu:
      return body(ops::Constant<Function::relu>{});
    case Function::gelu_erf:
      return body(ops::Constant<Function::gelu_erf>{});
    case Function::gelu_tanh:
      return body(ops::Constant<Function::gelu_tanh>{});
    case Function::tanh:
      return body(ops::Constant<Function::tanh>{});
    case Function::exp:
      return body(ops::Constant<Function::exp>{});
    case Function::reciprocal:
      return body(ops::Constant<Function::reciprocal>{});
    case Function::rsqrt:
      return body(ops::Constant<Function::rsqrt>{});
    case Function::square:
      return body(ops::Constant<Function::square>{});
  }
}

void run_function(Function function, const TensorRange& given, const at::Tensor& given_shift,
                  const TensorRange& to, const TensorLines& lines) {
  const TensorRange x = packed(given);
  const at::Tensor shift = packed(given_shift);
  const DeviceGuard guard(x.lo);
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    with_function(function, [&](auto f) {
      run(x.lo, FunctionStep<T, f.value>{.x_lo = input<T>(x.lo),
                                         .x_hi = input<T>(x.hi),
                                         .shift = input<T>(shift),
                                         .lo = output<T>(to.lo),
                                         .hi = output<T>(to.hi),
                                         .lower_slope = output<T>(lines.lower_slope),
                                         .lower_offset = output<T>(lines.lower_offset),
                                         .upper_slope = output<T>(lines.upper_slope),
                                         .upper_offset = output<T>(lines.upper_offset),
                                         .group = x.lo.size(-1)});
    });
  });
}

// The number of neighbours of x that share an element of y.
int64_t group_of(const at::Tensor& x, const at::Tensor& y) {
  return x.size(-1) / y.size(-1);
}

struct PencilInputs {
  PencilTensors x, y;
  at::Tensor a, b, c, e;
  int64_t columns = 0;
  double lost_scale = 0;
};

void run_pencil(Pencil kind, const PencilTensors& to, const PencilInputs& inputs,
                const PencilBall& ball, TensorRange& known) {
  const DeviceGuard guard(to.mid);
  known = packed(known);
  const int64_t batch = to.mid.size(0);
  const auto rad_rows = [](const PencilTensors& x) { return x.rad.defined() ? x.rad.size(1) : 0; };
  with_type(to.mid, [&](auto zero) {
    using T = decltype(zero);
    const PencilParams<T> params{
        .mid = output<T>(to.mid),
        .rad = output<T>(to.rad),
        .batch = batch,
        .coordinates = ball.coordinates,
        .elements = to.size.numel() / batch,
        .rad_rows = to.rad.size(1),
        .x_mid = input<T>(inputs.x.mid),
        .x_rad = input<T>(inputs.x.rad),
        .x_size = input<T>(inputs.x.size),
        .y_mid = input<T>(inputs.y.mid),
        .y_rad = input<T>(inputs.y.rad),
        .y_size = input<T>(inputs.y.size),
        .x_rad_rows = rad_rows(inputs.x),
        .y_rad_rows = rad_rows(inputs.y),
        .group = inputs.y.mid.defined() ? to.mid.size(-1) / inputs.y.mid.size(-1) : 1,
        .a = input<T>(inputs.a),
        .b = input<T>(inputs.b),
        .c = input<T>(inputs.c),
        .e = input<T>(inputs.e),
        .columns = inputs.columns,
        .lost_scale = static_cast<T>(inputs.lost_scale),
        .lo = output<T>(known.lo),
        .hi = output<T>(known.hi),
        .size = output<T>(to.size),
        .eps = input<T>(ball.eps),
        .positions = ball.positions,
        .norm = ball.norm,
        .norm_scale = static_cast<T>(ball.norm_scale),
        .norm_lost = static_cast<T>(ball.norm_lost),
        .reach_scale = static_cast<T>(ball.reach_scale)};
    SEQFUSE_RUN(to.mid, pencil, kind, params);
  });
}

at::Tensor without_rows(const at::Tensor& mid) {
  std::vector<int64_t> shape = mid.sizes().vec();
  shape.erase(shape.begin() + 1);
  return at::empty(shape, mid.options());
}

PencilTensors empty_pencil(const at::Tensor& like_mid, int64_t rad_rows) {
  std::vector<int64_t> shape = like_mid.sizes().vec();
  shape[1] = rad_rows;
  return {like(like_mid), at::empty(shape, like_mid.options()), without_rows(like_mid)};
}

PassedRows run_rows(Backward kind, const at::Tensor& given, const std::vector<at::Tensor>& parts,
                    int passed) {
  const at::Tensor rows = given.contiguous();
  const DeviceGuard guard(rows);
  std::vector<at::Tensor> p;
  for (const at::Tensor& part : parts) p.push_back(part.contiguous());
  p.resize(6);
  const int64_t batch = rows.size(0), functions = rows.size(1);
  const int64_t elements = rows.numel() / (batch * functions);
  PassedRows result;
  if (passed > 0) result.first = like(rows);
  if (passed > 1) result.second = like(rows);
  const int64_t chunks = (elements + kBackwardChunk - 1) / kBackwardChunk;
  result.constants = at::empty({chunks, 2, batch, functions}, rows.options().dtype(at::kDouble));
  const double lost = static_cast<double>(elements + 8) * Arithmetic<double>::unit;
  with_type(rows, [&](auto zero) {
    using T = decltype(zero);
    const BackwardParams<T> params{.rows = input<T>(rows),
                                   .a = input<T>(p[0]),
                                   .b = input<T>(p[1]),
                                   .c = input<T>(p[2]),
                                   .e = input<T>(p[3]),
                                   .x_magnitude = input<T>(p[4]),
                                   .magnitude = input<T>(p[5]),
                                   .first = output<T>(result.first),
                                   .second = output<T>(result.second),
                                   .constants = result.constants.mutable_data_ptr<double>(),
                                   .batch = batch,
                                   .functions = functions,
                                   .elements = elements,
                                   .gamma = 2 * lost / (1 - lost)};
    SEQFUSE_RUN(rows, backward_rows, kind, params);
  });
  return result;
}

}  // namespace

TensorSplit split(const TensorRange& given, double gamma) {
  const TensorRange x = packed(given);
  const DeviceGuard guard(x.lo);
  TensorSplit y{like(x.lo), like(x.lo), like(x.lo), {}};
  if (gamma > 0) y.grown = like(x.lo);
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    run(x.lo, SplitStep<T>{.lo = input<T>(x.lo),
                           .hi = input<T>(x.hi),
                           .mid = output<T>(y.mid),
                           .rad = output<T>(y.rad),
                           .magnitude = output<T>(y.magnitude),
                           .grown = output<T>(y.grown),
                           .gamma = static_cast<T>(gamma)});
  });
  return y;
}

TensorRange around(const at::Tensor& given_mid, const at::Tensor& given_rad, const at::Tensor& bias,
                   const AroundOptions& options) {
  const at::Tensor mid = given_mid.contiguous(), rad = given_rad.contiguous();
  const DeviceGuard guard(mid);
  const TensorRange y{like(mid), like(mid)};
  with_type(mid, [&](auto zero) {
    using T = decltype(zero);
    run(mid, AroundStep<T>{.mid = input<T>(mid),
                           .rad = input<T>(rad),
                           .bias = input<T>(bias),
                           .lo = output<T>(y.lo),
                           .hi = output<T>(y.hi),
                           .columns = mid.size(-1),
                           .gamma = static_cast<T>(options.gamma),
                           .scale = static_cast<T>(options.scale),
                           .rad_scale = static_cast<T>(options.rad_scale),
                           .at_least = static_cast<T>(options.at_least)});
  });
  return y;
}

TensorRange sum(const TensorRange& given_x, const TensorRange& given_y) {
  const TensorRange x = packed(given_x), y = packed(given_y);
  const DeviceGuard guard(x.lo);
  const TensorRange z{like(x.lo), like(x.lo)};
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    run(x.lo, SumStep<T>{.x_lo = input<T>(x.lo),
                         .x_hi = input<T>(x.hi),
                         .y_lo = input<T>(y.lo),
                         .y_hi = input<T>(y.hi),
                         .lo = output<T>(z.lo),
                         .hi = output<T>(z.hi)});
  });
  return z;
}

TensorRange image(Function function, const TensorRange& x, const at::Tensor& shift) {
  const TensorRange y{like(x.lo), like(x.lo)};
  run_function(function, x, shift, y, {});
  return y;
}

TensorLines lines(Function function, const TensorRange& x, const at::Tensor& shift) {
  const TensorLines y{like(x.lo), like(x.lo), like(x.lo), like(x.lo)};
  run_function(function, x, shift, {}, y);
  return y;
}

TensorRange product(const TensorRange& given_x, const TensorRange& given_y, const at::Tensor& limit,
                    const at::Tensor& bias) {
  const TensorRange x = packed(given_x), y = packed(given_y);
  const DeviceGuard guard(x.lo);
  const TensorRange z{like(x.lo), like(x.lo)};
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    run(x.lo, ProductStep<T>{.x_lo = input<T>(x.lo),
                             .x_hi = input<T>(x.hi),
                             .y_lo = input<T>(y.lo),
                             .y_hi = input<T>(y.hi),
                             .limit = input<T>(limit),
                             .bias = input<T>(bias),
                             .lo = output<T>(z.lo),
                             .hi = output<T>(z.hi),
                             .group = group_of(x.lo, y.lo),
                             .columns = x.lo.size(-1)});
  });
  return z;
}

TensorProductLines product_lines(const TensorRange& given_x, const TensorRange& given_y,
                                 const TensorRange& given_own, const at::Tensor& bias,
                                 double gamma) {
  const TensorRange x = packed(given_x), y = packed(given_y), own = packed(given_own);
  const DeviceGuard guard(x.lo);
  const TensorProductLines z{like(x.lo), like(x.lo), like(x.lo), like(x.lo)};
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    run(x.lo, ProductLinesStep<T>{.x_lo = input<T>(x.lo),
                                  .x_hi = input<T>(x.hi),
                                  .y_lo = input<T>(y.lo),
                                  .y_hi = input<T>(y.hi),
                                  .own_lo = input<T>(own.lo),
                                  .own_hi = input<T>(own.hi),
                                  .bias = input<T>(bias),
                                  .slope_x = output<T>(z.slope_x),
                                  .slope_y = output<T>(z.slope_y),
                                  .mid = output<T>(z.mid),
                                  .rad = output<T>(z.rad),
                                  .group = group_of(x.lo, y.lo),
                                  .columns = x.lo.size(-1),
                                  .gamma = static_cast<T>(gamma)});
  });
  return z;
}

void mark_infinite(const TensorRange& given, const at::Tensor& bad) {
  const TensorRange x = packed(given);
  const DeviceGuard guard(x.lo);
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    run(x.lo, FiniteStep<T>{.lo = input<T>(x.lo),
                            .hi = input<T>(x.hi),
                            .bad = bad.mutable_data_ptr<uint8_t>(),
                            .elements = x.lo.numel() / x.lo.size(0)});
  });
}

TensorRange softmax_image(const TensorRange& given, double more) {
  const TensorRange x = packed(given);
  const DeviceGuard guard(x.lo);
  const TensorRange y{like(x.lo), like(x.lo)};
  with_type(x.lo, [&](auto zero) {
    using T = decltype(zero);
    const SoftmaxParams<T> params{.x_lo = input<T>(x.lo),
                                  .x_hi = input<T>(x.hi),
                                  .lo = output<T>(y.lo),
                                  .hi = output<T>(y.hi),
                                  .rows = x.lo.numel() / x.lo.size(-1),
                                  .keys = x.lo.size(-1),
                                  .more = static_cast<T>(more)};
    SEQFUSE_RUN(x.lo, softmax_image, params);
  });
  return y;
}

PencilTensors given_pencil(const at::Tensor& mid, const at::Tensor& rad, const PencilBall& ball,
                           const at::Tensor& constant_mid, const at::Tensor& constant_rad,
                           const at::Tensor& lost, double lost_scale, TensorRange& known) {
  const PencilTensors result{mid, rad, without_rows(mid)};
  run_pencil(Pencil::given, result,
             {.x = {},
              .y = {},
              .a = packed(constant_mid),
              .b = packed(constant_rad),
              .c = packed(lost),
              .e = {},
              .columns = constant_mid.defined() && constant_mid.dim() == 1 ? mid.size(-1) : 0,
              .lost_scale = lost_scale},
             ball, known);
  return result;
}

PencilTensors sum_pencil(const PencilTensors& x, const PencilTensors& y, const PencilBall& ball,
                         TensorRange& known) {
  const PencilTensors result = empty_pencil(x.mid, std::max(x.rad.size(1), y.rad.size(1)));
  run_pencil(Pencil::sum, result, {.x = x, .y = y, .a = {}, .b = {}, .c = {}, .e = {}}, ball,
             known);
  return result;
}

PencilTensors function_pencil(const PencilTensors& x, const TensorLines& lines,
                              const PencilBall& ball, TensorRange& known) {
  const PencilTensors result = empty_pencil(x.mid, x.mid.size(1));
  run_pencil(Pencil::function, result,
             {.x = x,
              .y = {},
              .a = lines.lower_slope,
              .b = lines.lower_offset,
              .c = lines.upper_slope,
              .e = lines.upper_offset},
             ball, known);
  return result;
}

PencilTensors product_pencil(const PencilTensors& x, const PencilTensors& y,
                             const TensorProductLines& lines, const PencilBall& ball,
                             TensorRange& known) {
  const PencilTensors result = empty_pencil(x.mid, std::max(x.rad.size(1), y.rad.size(1)));
  run_pencil(
      Pencil::product, result,
      {.x = x, .y = y, .a = lines.slope_x, .b = lines.slope_y, .c = lines.mid, .e = lines.rad},
      ball, known);
  return result;
}

PassedRows rows_to_constants(const at::Tensor& rows, const at::Tensor& mid, const at::Tensor& rad) {
  return run_rows(Backward::constants, rows, {mid, rad}, 0);
}

PassedRows rows_through_function(const at::Tensor& rows, const TensorLines& lines,
                                 const at::Tensor& x_magnitude, const at::Tensor& magnitude) {
  return run_rows(Backward::function, rows,
                  {lines.lower_slope, lines.lower_offset, lines.upper_slope, lines.upper_offset,
                   x_magnitude, magnitude},
                  1);
}

PassedRows rows_through_product(const at::Tensor& rows, const TensorProductLines& lines) {
  return run_rows(Backward::product, rows, {lines.mid, lines.rad, lines.slope_x, lines.slope_y}, 2);
}

}  // namespace seqfuse::ops::bounds
