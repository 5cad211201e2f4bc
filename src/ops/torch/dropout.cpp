#include "ops/kernels/dropout.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor apply_mask(const Tensor& x_in, double p, int64_t seed) {
  const DeviceGuard guard(x_in);
  const Tensor x = x_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  SEQFUSE_RUN(x, dropout_forward,
              {.x = x.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .count = x.numel(),
               .p = p,
               .seed = static_cast<uint64_t>(seed)},
              dtype_of(x));
  return y;
}

class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double p, int64_t seed) {
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    return apply_mask(x, p, seed);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor dx = apply_mask(gradients[0], context->saved_data["p"].toDouble(),
                                 context->saved_data["seed"].toInt());
    return {dx, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, int64_t seed) {
  check_float({"dropout", "x", x});
  check_dropout_probability("dropout", p);
  return p == 0 ? x : Dropout::apply(x, p, seed);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def("dropout(Tensor x, float p, int seed) -> Tensor", &seqfuse::ops::dropout);
}
