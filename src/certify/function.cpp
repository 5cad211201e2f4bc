#include "certify/function.h"

#include <array>

#include "base/error.h"

namespace seqfuse::certify {
using at::Tensor;

const char* name_of(Function function) {
  constexpr std::array kNames = {"relu", "gelu",       "gelu_new", "tanh",
                                 "exp",  "reciprocal", "rsqrt",    "square"};
  return kNames.at(static_cast<size_t>(function));
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
  return ops::bounds::image(function, x, {});
}

Lines lines(Function function, const Interval& x) {
  return ops::bounds::lines(function, x, {});
}

}  // namespace seqfuse::certify
