#include "ops/kernels/step/dropout.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/device_seeds.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace dropout_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "seqfuse::dropout";

Tensor run(const Tensor& x_in, double p, int64_t seed) {
  check_float({"dropout", "x", x_in});
  check_dropout_probability("dropout", p);
  const DeviceGuard guard(x_in);
  const Tensor x = x_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  SEQFUSE_RUN(x, dropout_forward,
              {.x = x.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .count = x.numel(),
               .p = p,
               .seed = kernel_seed(x, seed)},
              dtype_of(x));
  return y;
}

Tensor shapes(const Tensor& x, double, c10::SymInt) {
  return empty_like_shape(x);
}

// Its backward pass is itself: the same mask applied to the gradient.
class Dropout : public torch::autograd::Function<Dropout> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double p, c10::SymInt seed) {
    static const auto op = find_operator<decltype(shapes)>(kName);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    return op.call(x, p, seed);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(shapes)>(kName);
    return {op.call(gradients[0], context->saved_data["p"].toDouble(),
                    context->saved_data["seed"].toSymInt()),
            Tensor(), Tensor()};
  }
};

Tensor with_gradient(const Tensor& x, double p, c10::SymInt seed) {
  return Dropout::apply(x, p, seed);
}

}  // namespace
}  // namespace dropout_op

Tensor dropout(const Tensor& x, double p, int64_t seed) {
  static const auto op = find_operator<decltype(dropout_op::shapes)>(dropout_op::kName);
  return p == 0 ? x : op.call(x, p, seed);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace dropout_op;
  Definition(library, "dropout(Tensor x, float p, SymInt seed) -> Tensor")
      .kernels(&run, &shapes)
      .autograd(&with_gradient);
}

}  // namespace seqfuse::ops
