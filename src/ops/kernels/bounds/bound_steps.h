// The elementwise parts of bounding a net by linear functions (src/certify), each in one pass over memory.
//
// Steps that look at one element at a time have an operator()(i) for element i of [B, E], flattened; they run
// as each_element. A tensor `of groups` has an element for each `group` neighbours; one `of columns` repeats
// every `columns` elements.
//
// T: float64 and float32, on the CPU and on CUDA, with the same formulas (bound_rules.h). All tensors are
// contiguous. No sizes are 0. Outputs may be null where said.   Aliasing: none, except where said.
// Errors: the launchers return those of CUDA.
#pragma once

#include <cstdint>

#include "ops/kernels/bounds/bound_rules.h"
#include "ops/kernels/common/cuda_api.h"

namespace seqfuse::ops::bounds {

// Middle, half width and magnitude of each range. grown: rad + |mid| * gamma, may be null.
template <class T>
struct SplitStep {
  const T *lo, *hi;
  T *mid, *rad, *magnitude, *grown;
  T gamma;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    const Range<T> x{lo[i], hi[i]};
    const Middle<T> middle = middle_of(x);
    mid[i] = middle.mid;
    rad[i] = middle.rad;
    magnitude[i] = bounds::magnitude(x);
    if (grown) grown[i] = middle.rad + size_of(middle.mid) * gamma;
  }
};

// mid * scale ± (rad + |bias| * gamma) * rad_scale, outwards, at least at_least where that is above 0.
template <class T>
struct AroundStep {
  const T *mid, *rad;
  const T* bias;  // of columns; may be null
  T *lo, *hi;     // may be mid and rad
  int64_t columns;
  T gamma, scale, rad_scale, at_least;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    T r = rad[i];
    if (bias) r += size_of(bias[i % columns]) * gamma;
    Range<T> x = around(mid[i] * scale, r * rad_scale);
    if (at_least > 0) x.lo = larger(x.lo, at_least);
    lo[i] = x.lo;
    hi[i] = x.hi;
  }
};

// x + y.
template <class T>
struct SumStep {
  const T *x_lo, *x_hi, *y_lo, *y_hi;
  T *lo, *hi;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    lo[i] = lowered(x_lo[i] + y_lo[i], T(2));
    hi[i] = raised(x_hi[i] + y_hi[i], T(2));
  }
};

// f(x - shift): its image and its lines by x. Either may be null.
template <class T, Function f>
struct FunctionStep {
  const T *x_lo, *x_hi;
  const T* shift;  // of groups; may be null
  T *lo, *hi;
  T *lower_slope, *lower_offset, *upper_slope, *upper_offset;
  int64_t group;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    Range<T> x{x_lo[i], x_hi[i]};
    const T moved = shift ? shift[i / group] : T(0);
    if (shift) x = widened(Range<T>{x.lo - moved, x.hi - moved}, T(1));
    if (lo) {
      const Range<T> image = image_of<f>(x);
      lo[i] = image.lo;
      hi[i] = image.hi;
    }
    if (!lower_slope) return;
    const Lines<T> lines = lines_of<f>(x);
    lower_slope[i] = lines.lower.slope;
    upper_slope[i] = lines.upper.slope;
    lower_offset[i] = shift ? moved_offset(lines.lower, moved, T(-1)) : lines.lower.offset;
    upper_offset[i] = shift ? moved_offset(lines.upper, moved, T(1)) : lines.upper.offset;
  }
};

// The interval of x y + bias, where |x y| is at most limit.
template <class T>
struct ProductStep {
  const T *x_lo, *x_hi;
  const T *y_lo, *y_hi;   // of groups
  const T *limit, *bias;  // of columns; may be null
  T *lo, *hi;
  int64_t group, columns;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    Range<T> x = product_of(Range<T>{x_lo[i], x_hi[i]}, Range<T>{y_lo[i / group], y_hi[i / group]});
    if (limit) {
      x.lo = larger(x.lo, -limit[i % columns]);
      x.hi = smaller(x.hi, limit[i % columns]);
    }
    if (bias) {
      const T b = bias[i % columns], more = size_of(b) * (4 * Arithmetic<T>::unit);
      x = widened(Range<T>{x.lo + (b - more), x.hi + (b + more)}, T(4));
    }
    lo[i] = x.lo;
    hi[i] = x.hi;
  }
};

// |x y + bias - (slope_x x + slope_y y + mid)| <= rad, with the middles of the other factor as slopes. Where the
// known interval of the result is narrower, slopes are 0.
template <class T>
struct ProductLinesStep {
  const T *x_lo, *x_hi;
  const T *y_lo, *y_hi;      // of groups
  const T *own_lo, *own_hi;  // the known interval
  const T* bias;             // of columns; may be null
  T *slope_x, *slope_y, *mid, *rad;
  int64_t group, columns;
  T gamma;  // of a sum over a group

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    const Range<T> x{x_lo[i], x_hi[i]}, y{y_lo[i / group], y_hi[i / group]};
    const Middle<T> mx = middle_of(x), my = middle_of(y);
    const Middle<T> own = middle_of(Range<T>{own_lo[i], own_hi[i]});
    T m = -(mx.mid * my.mid);
    T r = mx.rad * my.rad * (1 + 8 * Arithmetic<T>::unit) +
          magnitude(x) * magnitude(y) * (4 * gamma) + Arithmetic<T>::tiny;
    if (bias) {
      m += bias[i % columns];
      r += size_of(bias[i % columns]) * (8 * Arithmetic<T>::unit);
    }
    const bool constant = own.rad < r;
    slope_x[i] = constant ? T(0) : my.mid;
    slope_y[i] = constant ? T(0) : mx.mid;
    mid[i] = constant ? own.mid : m;
    rad[i] = constant ? own.rad : r;
  }
};

// Sets bad[b] to 1 if an end of the E ranges of b is NaN or infinite.
template <class T>
struct FiniteStep {
  const T *lo, *hi;
  uint8_t* bad;  // [B]
  int64_t elements;

  SEQFUSE_HOST_DEVICE void operator()(int64_t i) const {
    if (!(lo[i] - lo[i] == 0 && hi[i] - hi[i] == 0)) bad[i / elements] = 1;
  }
};

// The image of a softmax over each row.
template <class T>
struct SoftmaxParams {
  const T *x_lo, *x_hi;  // [rows, keys]
  T *lo, *hi;
  int64_t rows, keys;
  T more;  // what a sum over the keys loses, relative
};

enum class Norm : int { l1, l2, linf };  // of a perturbation; sums below are of the dual norm

// The linear bounds of E elements by K perturbed numbers d: |y - (mid · d + its last row)| <= rad · d + its last
// row, where mid is [B, K + 1, E]. rad has K + 1 rows, or 1: a number for each element. d has `positions`
// parts of K / positions numbers, and the norm of each part is at most eps[b].
enum class Pencil : int {
  given,     // mid and rad are there, of a product of matrices; the last rows get constants
  sum,       // x + y
  function,  // between lines by x
  product    // slope_x x + slope_y y + mid ± rad
};
template <class T>
struct PencilParams {
  T *mid, *rad;
  int64_t batch, coordinates, elements, rad_rows;
  // Inputs of all but `given`. y_of_groups: y has an element for each `group` of x.
  const T *x_mid, *x_rad, *x_size;
  const T *y_mid, *y_rad, *y_size;
  int64_t x_rad_rows, y_rad_rows, group;
  // function: lower slope and offset, upper slope and offset. product: slope_x, slope_y, mid, rad. [B, E].
  // given: the constants of mid, of columns, of rad, [B, E], and what was lost, [B, E]; each may be null.
  const T *a, *b, *c, *e;
  int64_t columns;
  T lost_scale;  // given: times what was lost
  // lo and hi come in as known intervals and go out as their intersection with what the bounds reach. size: at
  // least the sum of the absolute values of all terms.
  T *lo, *hi, *size;  // [B, E]
  const T* eps;       // [B], rounded upwards
  int64_t positions;
  Norm norm;
  T norm_scale, norm_lost, reach_scale;  // what dual norms and their sum lose
};

// Passes [B, M] linear functions of E elements back through an operator. constants [chunks, 2, B, M], float64: sums of
// rows * mid and of |rows| * (rad + what their sum loses), for each chunk of kBackwardChunk elements.
enum class Backward : int {
  constants,  // mid and rad: a, b
  function,  // lower slope and offset, upper slope and offset: a, b, c, e; magnitudes of x and of f(x)
  product  // mid and rad: a, b; slopes: c, e
};
constexpr int64_t kBackwardChunk = 4096;
template <class T>
struct BackwardParams {
  const T* rows;                     // [B, M, E]
  const T *a, *b, *c, *e;            // [B, E]
  const T *x_magnitude, *magnitude;  // [B, E]
  T *first, *second;                 // [B, M, E]; function: first alone
  double* constants;
  int64_t batch, functions, elements;
  double gamma;  // what a sum of E products in double loses, relative
};

// A number within rad of mid.
template <class T>
struct RowConstant {
  T mid, rad;
};
// The offsets between the lines of an element, with the rounding errors of slopes and offsets.
template <class T>
SEQFUSE_HOST_DEVICE RowConstant<T> function_constant(const BackwardParams<T>& p, int64_t i) {
  const T offset = (p.b[i] + p.e[i]) * T(0.5), gap = (p.e[i] - p.b[i]) * T(0.5);
  const T lost = ((size_of(p.a[i]) + size_of(p.c[i])) * p.x_magnitude[i] + size_of(p.b[i]) +
                  size_of(p.e[i]) + p.magnitude[i]) *
                 (8 * Arithmetic<T>::unit);
  return {offset, gap + lost};
}
// Element i of [B, E] and r of [B, M, E]: passes a row on, and returns the constant.
template <Backward kind, class T>
SEQFUSE_HOST_DEVICE RowConstant<T> backward_element(const BackwardParams<T>& p, int64_t i,
                                                    int64_t r) {
  const T row = p.rows[r];
  if constexpr (kind == Backward::function) {  // rows above 0 take the lower line
    p.first[r] = row * ((p.a[i] + p.c[i]) * T(0.5)) + size_of(row) * ((p.a[i] - p.c[i]) * T(0.5));
    return function_constant(p, i);
  } else if constexpr (kind == Backward::product) {
    p.first[r] = row * p.c[i];
    p.second[r] = row * p.e[i];
  }
  return {p.a[i], p.b[i]};
}
// Adds an element to the sums of its chunk.
template <class T>
SEQFUSE_HOST_DEVICE void add_constant(const BackwardParams<T>& p, const RowConstant<T>& c, T row,
                                      double& value, double& lost) {
  const double mid = c.mid, rad = c.rad, size = size_of(static_cast<double>(row));
  value += static_cast<double>(row) * mid;
  lost += size * (rad + (size_of(mid) + rad) * p.gamma);
}

// An element's coefficients: mid = p x_mid + q x_rad + c y_mid, rad = s x_mid + t x_rad + f y_rad, and what
// their last rows add.
template <class T>
struct PencilElement {
  T p, q, s, t, c, f, mid, rad;
};
template <Pencil kind, class T>
SEQFUSE_HOST_DEVICE PencilElement<T> pencil_element(const PencilParams<T>& params, int64_t batch,
                                                    int64_t element) {
  const int64_t i = batch * params.elements + element;
  const T unit = Arithmetic<T>::unit;
  PencilElement<T> result{};
  if constexpr (kind == Pencil::given) {
    if (params.a) result.mid = params.a[params.columns > 0 ? element % params.columns : i];
    if (params.b) result.rad = params.b[i];
    if (params.c) result.rad += params.c[i] * params.lost_scale;
  } else if constexpr (kind == Pencil::sum) {
    result.rad = (params.x_size[i] + params.y_size[i]) * (8 * unit);
  } else if constexpr (kind == Pencil::function) {
    const T lower = size_of(params.a[i]), upper = size_of(params.c[i]);
    result.p = (params.c[i] + params.a[i]) * T(0.5);
    result.q = (upper - lower) * T(0.5);
    result.s = (params.c[i] - params.a[i]) * T(0.5);
    result.t = (upper + lower) * T(0.5);
    result.mid = (params.e[i] + params.b[i]) * T(0.5);
    result.rad =
        (params.e[i] - params.b[i]) * T(0.5) +
        ((lower + upper) * params.x_size[i] + size_of(params.b[i]) + size_of(params.e[i])) *
            (16 * unit);
  } else {
    const T y_size =
        params.y_size[batch * (params.elements / params.group) + element / params.group];
    result.p = params.a[i];
    result.c = params.b[i];
    result.t = size_of(params.a[i]);
    result.f = size_of(params.b[i]);
    result.mid = params.c[i];
    result.rad = params.e[i] + (params.x_size[i] * result.t + y_size * result.f) * (16 * unit);
  }
  return result;
}

template <class T>
struct PencilRow {
  T mid, rad;
};
// Row k of an element, without constants. Stores nothing.
template <Pencil kind, class T>
SEQFUSE_HOST_DEVICE PencilRow<T> pencil_row(const PencilParams<T>& params,
                                            const PencilElement<T>& element, int64_t batch,
                                            int64_t k, int64_t e) {
  const int64_t rows = params.coordinates + 1;
  const auto rad_of = [&](const T* rad, int64_t rad_rows, int64_t elements, int64_t at) {
    if (rad_rows == rows) return rad[(batch * rows + k) * elements + at];
    return k == params.coordinates ? rad[batch * elements + at] : T(0);
  };
  const int64_t at = (batch * rows + k) * params.elements + e;
  if constexpr (kind == Pencil::given) {
    return {params.mid[at], rad_of(params.rad, params.rad_rows, params.elements, e)};
  } else {
    const T x_mid = params.x_mid[at];
    const T x_rad = rad_of(params.x_rad, params.x_rad_rows, params.elements, e);
    if constexpr (kind == Pencil::function) {
      return {element.p * x_mid + element.q * x_rad, element.s * x_mid + element.t * x_rad};
    } else {
      const int64_t width = kind == Pencil::sum ? params.elements : params.elements / params.group;
      const int64_t of_y = kind == Pencil::sum ? e : e / params.group;
      const T y_mid = params.y_mid[(batch * rows + k) * width + of_y];
      const T y_rad = rad_of(params.y_rad, params.y_rad_rows, width, of_y);
      if constexpr (kind == Pencil::sum) {
        return {x_mid + y_mid, x_rad + y_rad};
      } else {
        return {element.p * x_mid + element.c * y_mid, element.t * x_rad + element.f * y_rad};
      }
    }
  }
}
// Writes a row. Rows of rad that are 0 are not there.
template <class T>
SEQFUSE_HOST_DEVICE void store_row(const PencilParams<T>& params, const PencilRow<T>& row,
                                   int64_t batch, int64_t k, int64_t e) {
  const int64_t rows = params.coordinates + 1;
  params.mid[(batch * rows + k) * params.elements + e] = row.mid;
  if (params.rad_rows == rows) {
    params.rad[(batch * rows + k) * params.elements + e] = row.rad;
  } else if (k == params.coordinates) {
    params.rad[batch * params.elements + e] = row.rad;
  }
}

// A dual norm of the slopes of one position, from one of them to all.
template <class T>
SEQFUSE_HOST_DEVICE T norm_with(Norm norm, T so_far, T slope) {
  if (norm == Norm::l1) return larger(so_far, size_of(slope));
  return so_far + (norm == Norm::l2 ? slope * slope : size_of(slope));
}
template <class T>
SEQFUSE_HOST_DEVICE T norm_joined(Norm norm, T a, T b) {
  return norm == Norm::l1 ? larger(a, b) : a + b;
}
template <class T>
SEQFUSE_HOST_DEVICE T norm_ended(const PencilParams<T>& params, T sum) {
  if (params.norm == Norm::l1) return sum;
  const T root = params.norm == Norm::l2 ? std::sqrt(sum) : sum;
  return root * params.norm_scale + params.norm_lost;
}

// The last row's constants, and the interval that the element's linear bounds allow. down and up: sums of dual
// norms over the positions, of mid - rad and of mid + rad.
template <class T>
SEQFUSE_HOST_DEVICE void end_element(const PencilParams<T>& params, PencilRow<T> last, T down, T up,
                                     int64_t batch, int64_t e) {
  store_row(params, last, batch, params.coordinates, e);
  const int64_t i = batch * params.elements + e;
  const T scale = params.eps[batch] * params.reach_scale;
  down *= scale;
  up *= scale;
  const T size = size_of(last.mid) + size_of(last.rad) + down + up;
  const T more = size * (16 * Arithmetic<T>::unit);
  params.size[i] = size;
  params.lo[i] = larger(params.lo[i], last.mid - last.rad - down - more);
  params.hi[i] = smaller(params.hi[i], last.mid + last.rad + up + more);
}

// CPU: float and double.
template <class Step>
void each_element_cpu(const Step& step, int64_t elements);
template <class T>
void softmax_image_cpu(const SoftmaxParams<T>& params);
template <class T>
void pencil_cpu(Pencil kind, const PencilParams<T>& params);
template <class T>
void backward_rows_cpu(Backward kind, const BackwardParams<T>& params);

#ifdef SEQFUSE_CUDA_API
// Enqueue on the stream of the current device; no allocation, no synchronisation.
template <class Step>
cudaError_t each_element_cuda(const Step& step, int64_t elements, cudaStream_t stream);
template <class T>
cudaError_t softmax_image_cuda(const SoftmaxParams<T>& params, cudaStream_t stream);
template <class T>
cudaError_t pencil_cuda(Pencil kind, const PencilParams<T>& params, cudaStream_t stream);
template <class T>
cudaError_t backward_rows_cuda(Backward kind, const BackwardParams<T>& params, cudaStream_t stream);
#endif

// INSTANTIATE(step type) for every step of each_element.
#define SEQFUSE_EACH_BOUND_STEP(INSTANTIATE, T)      \
  INSTANTIATE(SplitStep<T>)                          \
  INSTANTIATE(AroundStep<T>)                         \
  INSTANTIATE(SumStep<T>)                            \
  INSTANTIATE(FunctionStep<T, Function::relu>)       \
  INSTANTIATE(FunctionStep<T, Function::gelu_erf>)   \
  INSTANTIATE(FunctionStep<T, Function::gelu_tanh>)  \
  INSTANTIATE(FunctionStep<T, Function::tanh>)       \
  INSTANTIATE(FunctionStep<T, Function::exp>)        \
  INSTANTIATE(FunctionStep<T, Function::reciprocal>) \
  INSTANTIATE(FunctionStep<T, Function::rsqrt>)      \
  INSTANTIATE(FunctionStep<T, Function::square>)     \
  INSTANTIATE(ProductStep<T>)                        \
  INSTANTIATE(ProductLinesStep<T>)                   \
  INSTANTIATE(FiniteStep<T>)

}  // namespace seqfuse::ops::bounds
