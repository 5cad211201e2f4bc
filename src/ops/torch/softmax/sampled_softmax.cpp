#include "ops/kernels/softmax/sampled_softmax.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <array>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/embedding/table.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace sampled_softmax_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "sampled_softmax_loss";
constexpr const char* kForward = "seqfuse::sampled_softmax_loss_forward";
constexpr const char* kBackward = "seqfuse::sampled_softmax_loss_backward";

// Losses [T]; coefficients [T, 1 + K] and dhidden [T, D], which the backward pass scales: empty if
// no gradient is wanted.
std::tuple<Tensor, Tensor, Tensor> run_forward(const Tensor& hidden_in, const Tensor& table_in,
                                               const Tensor& targets_in, const Tensor& negatives_in,
                                               double temperature, bool needs_gradient) {
  const Arg targets_arg{kOp, "targets", targets_in}, negatives_arg{kOp, "negatives", negatives_in};
  check_softmax_loss(kOp, hidden_in, table_in, targets_in, temperature);
  check_rank(negatives_arg, 2, "[T, K]");
  check_sizes(negatives_arg, {hidden_in.size(0), negatives_in.size(1)},
              "one row for each row of hidden");
  const Tensor targets = checked_ids(targets_arg, at::kLong, table_in);
  const Tensor negatives = checked_ids(negatives_arg, at::kInt, table_in);
  const DeviceGuard guard(hidden_in);
  const Tensor hidden = hidden_in.contiguous(), table = table_in.contiguous();
  const int64_t positions = hidden.size(0), num_negatives = negatives.size(1);
  Tensor losses = at::empty({positions}, sum_options(hidden));
  Tensor coefficients = at::empty({0}, sum_options(hidden)), dhidden = at::empty_like(coefficients);
  if (needs_gradient) {
    coefficients = at::empty({positions, 1 + num_negatives}, sum_options(hidden));
    dhidden = at::empty(hidden.sizes(), sum_options(hidden));
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
  return {losses, coefficients, dhidden};
}

std::tuple<Tensor, Tensor, Tensor> forward_shapes(const Tensor& hidden, const Tensor&,
                                                  const Tensor&, const Tensor& negatives, double,
                                                  bool needs_gradient) {
  const auto made = [&](c10::SymIntArrayRef sizes) {
    return needs_gradient ? empty_shape(sizes, sum_options(hidden))
                          : at::empty({0}, sum_options(hidden));
  };
  return {empty_shape({hidden.sym_size(0)}, sum_options(hidden)),
          made({hidden.sym_size(0), negatives.sym_size(1) + 1}), made(hidden.sym_sizes())};
}

// dhidden and dtable, each undefined if not wanted.
std::tuple<Tensor, Tensor> run_backward(const Tensor& dlosses, const Tensor& hidden_in,
                                        const Tensor& targets, const Tensor& negatives,
                                        const Tensor& coefficients, const Tensor& dhidden,
                                        int64_t num_rows, double temperature, bool sparse,
                                        std::array<bool, 2> wanted) {
  const DeviceGuard guard(hidden_in);
  const Tensor hidden = hidden_in.contiguous(), weights = dlosses.unsqueeze(1);
  Tensor scaled, dtable;
  if (wanted[0]) scaled = (dhidden * weights).to(hidden.scalar_type());
  if (wanted[1]) {
    dtable = table_gradient({.rows = hidden * (weights / temperature),
                             .ids = targets.contiguous(),
                             .more_ids = negatives.contiguous(),
                             .weights = coefficients},
                            num_rows, hidden.scalar_type(), sparse);
  }
  return {scaled, dtable};
}

std::tuple<Tensor, Tensor> backward_shapes(const Tensor&, const Tensor& hidden, const Tensor&,
                                           const Tensor&, const Tensor&, const Tensor&,
                                           c10::SymInt num_rows, double, bool sparse,
                                           std::array<bool, 2> wanted) {
  TORCH_CHECK_VALUE(!sparse || !wanted[1], kOp,
                    ": a sparse gradient cannot be traced; pass sparse_table_grad=False");
  return {wanted[0] ? empty_like_shape(hidden) : Tensor(),
          wanted[1] ? empty_shape({num_rows, hidden.sym_size(1)}, hidden.options()) : Tensor()};
}

void check_sparse(const Tensor& table, bool sparse_table_grad) {
  TORCH_CHECK_VALUE(!sparse_table_grad || table.is_cpu(), kOp, ": sparse_table_grad is true on ",
                    table.device(),
                    "; expected false on CUDA, where it would take [T, 1 + K, D]: "
                    "pass the rows that are touched as the table");
}

Tensor without_gradient(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                        const Tensor& negatives, double temperature, bool sparse_table_grad) {
  static const auto op = find_operator<decltype(forward_shapes)>(kForward);
  check_sparse(table, sparse_table_grad);
  return std::get<0>(op.call(hidden, table, targets, negatives, temperature, false));
}

class SampledSoftmax : public torch::autograd::Function<SampledSoftmax> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& table,
                        const Tensor& targets, const Tensor& negatives, double temperature,
                        bool sparse_table_grad) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [losses, coefficients, dhidden] =
        op.call(hidden, table, targets, negatives, temperature, true);
    context->save_for_backward({hidden, targets, negatives, coefficients, dhidden});
    context->saved_data["num_rows"] = table.sym_size(0);
    context->saved_data["temperature"] = temperature;
    context->saved_data["sparse_table_grad"] = sparse_table_grad;
    return losses;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    const auto [dhidden, dtable] = op.call(
        gradients[0], saved[0], saved[1], saved[2], saved[3], saved[4],
        context->saved_data["num_rows"].toSymInt(), context->saved_data["temperature"].toDouble(),
        context->saved_data["sparse_table_grad"].toBool(),
        {context->needs_input_grad(0), context->needs_input_grad(1)});
    return {dhidden, dtable, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

Tensor with_gradient(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                     const Tensor& negatives, double temperature, bool sparse_table_grad) {
  if (!at::GradMode::is_enabled() || !(hidden.requires_grad() || table.requires_grad())) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return without_gradient(hidden, table, targets, negatives, temperature, sparse_table_grad);
  }
  check_sparse(table, sparse_table_grad);
  return SampledSoftmax::apply(hidden, table, targets, negatives, temperature, sparse_table_grad);
}

}  // namespace
}  // namespace sampled_softmax_op

Tensor sampled_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                            const Tensor& negatives, double temperature, bool sparse_table_grad) {
  static const auto op =
      find_operator<decltype(sampled_softmax_op::with_gradient)>("seqfuse::sampled_softmax_loss");
  return op.call(hidden, table, targets, negatives, temperature, sparse_table_grad);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace sampled_softmax_op;
  Definition(library,
             "sampled_softmax_loss(Tensor hidden, Tensor table, Tensor targets, Tensor negatives, "
             "float temperature, bool sparse_table_grad=False) -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library,
             "sampled_softmax_loss_forward(Tensor hidden, Tensor table, Tensor targets, "
             "Tensor negatives, float temperature, bool needs_gradient) -> "
             "(Tensor, Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(library,
             "sampled_softmax_loss_backward(Tensor dlosses, Tensor hidden, Tensor targets, "
             "Tensor negatives, Tensor coefficients, Tensor dhidden, SymInt num_rows, "
             "float temperature, bool sparse, bool[2] wanted) -> (Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
