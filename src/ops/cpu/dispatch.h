// Runs the right instantiation of a CPU operator for a run-time dtype.
#pragma once

#include "base/dtype.h"
#include "base/error.h"

namespace seqfuse::ops::cpu {

// body(T{}) with T = float or double.
template <class Body>
void dispatch(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    default:
      throw_error("a CPU operator was given {}; expected float32 or float64", name_of(dtype));
  }
}

}  // namespace seqfuse::ops::cpu
