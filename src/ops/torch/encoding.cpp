#include "ops/kernels/encoding.h"

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

// scale * x + table[index], index int64 [T] in range.
class Encoding : public torch::autograd::Function<Encoding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x_in, const Tensor& table_in,
                        const Tensor& index, double scale) {
    const DeviceGuard guard(x_in);
    const Tensor x = with_unit_last_stride(x_in), table = with_unit_last_stride(table_in);
    const int64_t tokens = x.size(0), dim = x.size(1);
    Tensor y = at::empty({tokens, dim}, x.options());
    SEQFUSE_RUN(x, encoding_forward,
                {.x = x.const_data_ptr(),
                 .table = table.const_data_ptr(),
                 .index = index.const_data_ptr<int64_t>(),
                 .y = y.mutable_data_ptr(),
                 .tokens = tokens,
                 .dim = dim,
                 .x_stride = x.stride(0),
                 .table_stride = table.stride(0),
                 .y_stride = dim,
                 .scale = scale},
                dtype_of(x));
    context->save_for_backward({index});
    context->saved_data["table_rows"] = table.size(0);
    context->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor index = context->get_saved_variables()[0], dy = gradients[0].contiguous();
    const int64_t table_rows = context->saved_data["table_rows"].toInt();
    const DeviceGuard guard(dy);
    Tensor dx, dtable;
    if (dy.is_cuda()) {
      if (context->needs_input_grad(0)) dx = dy * context->saved_data["scale"].toDouble();
      if (context->needs_input_grad(1)) {
        const TableTerms terms{.rows = dy, .ids = index, .more_ids = {}, .weights = {}};
        dtable = table_gradient(terms, table_rows, dy.scalar_type(), /*sparse=*/false);
      }
      return {dx, dtable, Tensor(), Tensor()};
    }
    if (context->needs_input_grad(0)) dx = at::empty(dy.sizes(), dy.options());
    if (context->needs_input_grad(1)) dtable = at::empty({table_rows, dy.size(1)}, dy.options());
    encoding_backward_cpu({.dy = dy.const_data_ptr(),
                           .index = index.const_data_ptr<int64_t>(),
                           .dx = dx.defined() ? dx.mutable_data_ptr() : nullptr,
                           .dtable = dtable.defined() ? dtable.mutable_data_ptr() : nullptr,
                           .tokens = dy.size(0),
                           .dim = dy.size(1),
                           .table_rows = table_rows,
                           .scale = context->saved_data["scale"].toDouble()},
                          dtype_of(dy));
    return {dx, dtable, Tensor(), Tensor()};
  }
};

void check_inputs(const Arg& x, const Arg& table) {
  check_rank(x, 2, "[T, D]");
  check_float(x);
  check_rank(table, 2, "[rows, D]");
  TORCH_CHECK_VALUE(table.tensor.numel() > 0, label(table), " is ", table.tensor.sizes(),
                    "; expected at least one row and column");
  check_sizes(table, {table.tensor.size(0), x.tensor.size(1)}, "the columns of x");
  check_like(table, x);
}

// num_targets, int64 [B] from 0 to the sequence's length.
Tensor checked_targets(const OptionalTensor& num_targets, const Tensor& offsets) {
  if (!num_targets || !num_targets->defined()) return {};
  const Arg arg{"position_encoding", "num_targets", *num_targets};
  const int64_t batch = offsets.numel() - 1;
  check_on(arg, offsets.device());
  check_int64(arg);
  check_sizes(arg, {batch}, "[B] for offsets [B + 1]");
  const Tensor targets = num_targets->contiguous();
  if (!targets.is_cpu()) return targets;
  const int64_t *place = offsets.const_data_ptr<int64_t>(),
                *count = targets.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < batch; ++b) {
    TORCH_CHECK_VALUE(0 <= count[b] && count[b] <= place[b + 1] - place[b], label(arg),
                      " of sequence ", b, " is ", count[b], "; expected 0 to its length ",
                      place[b + 1] - place[b]);
  }
  return targets;
}

}  // namespace

Tensor position_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets_in,
                         const OptionalTensor& num_targets, double scale) {
  check_inputs({"position_encoding", "x", x}, {"position_encoding", "table", table});
  const Tensor offsets =
      checked_offsets({"position_encoding", "offsets", offsets_in}, x.size(0), "x", x.device());
  const DeviceGuard guard(x);
  const Tensor targets = checked_targets(num_targets, offsets);
  Tensor index = at::empty({x.size(0)}, offsets.options());
  SEQFUSE_RUN(x, position_index,
              {.offsets = offsets.const_data_ptr<int64_t>(),
               .num_targets = targets.defined() ? targets.const_data_ptr<int64_t>() : nullptr,
               .index = index.mutable_data_ptr<int64_t>(),
               .batch = offsets.numel() - 1,
               .tokens = x.size(0),
               .table_rows = table.size(0)});
  return Encoding::apply(x, table, index, scale);
}

Tensor time_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets_in,
                     const Tensor& timestamps, double unit) {
  check_inputs({"time_encoding", "x", x}, {"time_encoding", "table", table});
  const Tensor offsets =
      checked_offsets({"time_encoding", "offsets", offsets_in}, x.size(0), "x", x.device());
  const DeviceGuard guard(x);
  const Arg times_arg{"time_encoding", "timestamps", timestamps};
  check_on(times_arg, x.device());
  check_int64(times_arg);
  check_sizes(times_arg, {x.size(0)}, "the rows of x");
  TORCH_CHECK_VALUE(unit > 0, "time_encoding: unit is ", unit, "; expected a positive number");
  const Tensor times = timestamps.contiguous();
  Tensor index = at::empty({x.size(0)}, offsets.options());
  SEQFUSE_RUN(x, time_index,
              {.offsets = offsets.const_data_ptr<int64_t>(),
               .timestamps = times.const_data_ptr<int64_t>(),
               .index = index.mutable_data_ptr<int64_t>(),
               .batch = offsets.numel() - 1,
               .tokens = x.size(0),
               .table_rows = table.size(0),
               .unit = unit});
  return Encoding::apply(x, table, index, 1.0);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "position_encoding(Tensor x, Tensor table, Tensor offsets, Tensor? num_targets, float scale) "
      "-> Tensor",
      &seqfuse::ops::position_encoding);
  library.def(
      "time_encoding(Tensor x, Tensor table, Tensor offsets, Tensor timestamps, float unit) -> "
      "Tensor",
      &seqfuse::ops::time_encoding);
}
