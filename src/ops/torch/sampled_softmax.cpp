#include "ops/kernels/sampled_softmax.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"
#include "ops/torch/table.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class SampledSoftmax : public torch::autograd::Function<SampledSoftmax> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden_in, const Tensor& table_in,
                        const Tensor& targets, const Tensor& negatives, double temperature,
                        bool sparse_table_grad, bool needs_gradient) {
    const DeviceGuard guard(hidden_in);
    const Tensor hidden = hidden_in.contiguous(), table = table_in.contiguous();
    const int64_t positions = hidden.size(0), num_negatives = negatives.size(1);
    const auto options = hidden.options().dtype(sum_type(hidden.scalar_type()));
    Tensor losses = at::empty({positions}, options), coefficients, dhidden;
    if (needs_gradient) {
      coefficients = at::empty({positions, 1 + num_negatives}, options);
      dhidden = at::empty(hidden.sizes(), options);
    }
    SEQFUSE_RUN(hidden, sampled_softmax_forward,
                {.hidden = hidden.const_data_ptr(),
                 .table = table.const_data_ptr(),
                 .targets = targets.const_data_ptr<int64_t>(),
                 .negatives = negatives.const_data_ptr<int32_t>(),
                 .losses = losses.mutable_data_ptr(),
                 .coefficients = needs_gradient ? coefficients.mutable_data_ptr() : nullptr,
                 .dhidden = needs_gradient ? dhidden.mutable_data_ptr() : nullptr,
                 .positions = positions,
                 .num_negatives = num_negatives,
                 .dim = hidden.size(1),
                 .num_rows = table.size(0),
                 .temperature = temperature},
                dtype_of(hidden));
    context->save_for_backward({hidden, targets, negatives, coefficients, dhidden});
    context->saved_data["num_rows"] = table.size(0);
    context->saved_data["temperature"] = temperature;
    context->saved_data["sparse_table_grad"] = sparse_table_grad;
    return losses;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &targets = saved[1], &negatives = saved[2];
    const Tensor &coefficients = saved[3], &dhidden = saved[4];
    const DeviceGuard guard(hidden);
    const Tensor weights = gradients[0].unsqueeze(1);
    variable_list result(7);
    if (context->needs_input_grad(0)) result[0] = (dhidden * weights).to(hidden.scalar_type());
    if (context->needs_input_grad(1)) {
      const Tensor rows = hidden * (weights / context->saved_data["temperature"].toDouble());
      result[1] = table_gradient(
          {.rows = rows, .ids = targets, .more_ids = negatives, .weights = coefficients},
          context->saved_data["num_rows"].toInt(), hidden.scalar_type(),
          context->saved_data["sparse_table_grad"].toBool());
    }
    return result;
  }
};

}  // namespace

Tensor sampled_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                            const Tensor& negatives, double temperature, bool sparse_table_grad) {
  constexpr const char* kOp = "sampled_softmax_loss";
  const Arg targets_arg{kOp, "targets", targets}, negatives_arg{kOp, "negatives", negatives};
  check_softmax_loss(kOp, hidden, table, targets, temperature);
  check_rank(negatives_arg, 2, "[T, K]");
  check_sizes(negatives_arg, {hidden.size(0), negatives.size(1)}, "one row for each row of hidden");
  TORCH_CHECK_VALUE(!sparse_table_grad || table.is_cpu(), kOp, ": sparse_table_grad is true on ",
                    table.device(),
                    "; expected false on CUDA, where it would take [T, 1 + K, D]: "
                    "pass the rows that are touched as the table");
  const bool needs_gradient =
      at::GradMode::is_enabled() && (hidden.requires_grad() || table.requires_grad());
  return SampledSoftmax::apply(hidden, table, checked_ids(targets_arg, at::kLong, table),
                               checked_ids(negatives_arg, at::kInt, table), temperature,
                               sparse_table_grad, needs_gradient);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "sampled_softmax_loss(Tensor hidden, Tensor table, Tensor targets, Tensor negatives, "
      "float temperature, bool sparse_table_grad=False) -> Tensor",
      &seqfuse::ops::sampled_softmax_loss);
}
