#include "ops/kernels/l2_normalize.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class L2Normalize : public torch::autograd::Function<L2Normalize> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_in, double eps) {
    const DeviceGuard guard(x_in);
    const Tensor x = with_unit_last_stride(x_in);
    const int64_t rows = x.size(0), dim = x.size(1);
    Tensor y = at::empty({rows, dim}, x.options());
    Tensor norm = at::empty({rows}, x.options().dtype(sum_type(x.scalar_type())));
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
    context->save_for_backward({x, norm});
    context->saved_data["eps"] = eps;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor& x = saved[0];
    const DeviceGuard guard(x);
    const Tensor dy = with_unit_last_stride(gradients[0]);
    const int64_t rows = x.size(0), dim = x.size(1);
    Tensor dx = at::empty({rows, dim}, x.options());
    SEQFUSE_RUN(x, l2_normalize_backward,
                {.x = x.const_data_ptr(),
                 .norm = saved[1].const_data_ptr(),
                 .dy = dy.const_data_ptr(),
                 .dx = dx.mutable_data_ptr(),
                 .rows = rows,
                 .dim = dim,
                 .x_stride = x.stride(0),
                 .dy_stride = dy.stride(0),
                 .dx_stride = dim,
                 .eps = context->saved_data["eps"].toDouble()},
                dtype_of(x));
    return {dx, Tensor()};
  }
};

}  // namespace

Tensor l2_normalize(const Tensor& x, double eps) {
  const Arg arg{"l2_normalize", "x", x};
  check_rank(arg, 2, "[T, D]");
  TORCH_CHECK_VALUE(x.size(1) > 0, "l2_normalize: x is ", x.sizes(),
                    "; expected at least one column");
  check_float(arg);
  TORCH_CHECK_VALUE(eps > 0, "l2_normalize: eps is ", eps, "; expected a positive number");
  return L2Normalize::apply(x, eps);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def("l2_normalize(Tensor x, float eps) -> Tensor", &seqfuse::ops::l2_normalize);
}
