#include "ops/kernels/norm/l2_normalize.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace l2_normalize_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kForward = "seqfuse::l2_normalize_forward";
constexpr const char* kBackward = "seqfuse::l2_normalize_backward";

// The result and the norm of each row.
std::tuple<Tensor, Tensor> run_forward(const Tensor& x_in, double eps) {
  const Arg arg{"l2_normalize", "x", x_in};
  check_rank(arg, 2, "[T, D]");
  TORCH_CHECK_VALUE(x_in.size(1) > 0, "l2_normalize: x is ", x_in.sizes(),
                    "; expected at least one column");
  check_float(arg);
  TORCH_CHECK_VALUE(eps > 0, "l2_normalize: eps is ", eps, "; expected a positive number");
  const DeviceGuard guard(x_in);
  const Tensor x = with_unit_last_stride(x_in);
  const int64_t rows = x.size(0), dim = x.size(1);
  Tensor y = at::empty({rows, dim}, x.options());
  Tensor norm = at::empty({rows}, sum_options(x));
  SEQFUSE_RUN(x, l2_normalize_forward,
              {.x = x.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .norm = norm.mutable_data_ptr(),
               .rows = rows,
               .dim = dim,
               .x_stride = x.stride(0),
               .y_stride = dim,
               .eps = eps},
              dtype_of(x));
  return {y, norm};
}

std::tuple<Tensor, Tensor> forward_shapes(const Tensor& x, double) {
  return {empty_like_shape(x), empty_shape({x.sym_size(0)}, sum_options(x))};
}

Tensor run_backward(const Tensor& dy_in, const Tensor& x_in, const Tensor& norm, double eps) {
  const DeviceGuard guard(x_in);
  const Tensor x = with_unit_last_stride(x_in), dy = with_unit_last_stride(dy_in);
  const int64_t rows = x.size(0), dim = x.size(1);
  Tensor dx = at::empty({rows, dim}, x.options());
  SEQFUSE_RUN(x, l2_normalize_backward,
              {.x = x.const_data_ptr(),
               .norm = norm.const_data_ptr(),
               .dy = dy.const_data_ptr(),
               .dx = dx.mutable_data_ptr(),
               .rows = rows,
               .dim = dim,
               .x_stride = x.stride(0),
               .dy_stride = dy.stride(0),
               .dx_stride = dim,
               .eps = eps},
              dtype_of(x));
  return dx;
}

Tensor backward_shapes(const Tensor&, const Tensor& x, const Tensor&, double) {
  return empty_like_shape(x);
}

Tensor without_gradient(const Tensor& x, double eps) {
  static const auto forward = find_operator<decltype(forward_shapes)>(kForward);
  return std::get<0>(forward.call(x, eps));
}

class L2Normalize : public torch::autograd::Function<L2Normalize> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, double eps) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [y, norm] = op.call(x, eps);
    context->save_for_backward({x, norm});
    context->saved_data["eps"] = eps;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    return {op.call(gradients[0], saved[0], saved[1], context->saved_data["eps"].toDouble()),
            Tensor()};
  }
};

Tensor with_gradient(const Tensor& x, double eps) {
  return L2Normalize::apply(x, eps);
}

}  // namespace
}  // namespace l2_normalize_op

Tensor l2_normalize(const Tensor& x, double eps) {
  static const auto op =
      find_operator<decltype(l2_normalize_op::with_gradient)>("seqfuse::l2_normalize");
  return op.call(x, eps);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace l2_normalize_op;
  Definition(library, "l2_normalize(Tensor x, float eps) -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library, "l2_normalize_forward(Tensor x, float eps) -> (Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(library,
             "l2_normalize_backward(Tensor dy, Tensor x, Tensor norm, float eps) -> Tensor")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
