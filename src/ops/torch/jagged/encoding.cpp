#include "ops/kernels/jagged/encoding.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <array>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/embedding/table.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace encoding_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kPositionForward = "seqfuse::position_encoding_forward";
constexpr const char* kTimeForward = "seqfuse::time_encoding_forward";
constexpr const char* kBackward = "seqfuse::encoding_backward";

// The result and, for the backward pass, each token's table row.
using Encoded = std::tuple<Tensor, Tensor>;

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

// scale * x + table[index]; index: int64 [T], in range.
Encoded encode(const Tensor& x_in, const Tensor& table_in, const Tensor& index, double scale) {
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
  return {y, index};
}

Encoded run_position(const Tensor& x, const Tensor& table, const Tensor& offsets_in,
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
  return encode(x, table, index, scale);
}

Encoded run_time(const Tensor& x, const Tensor& table, const Tensor& offsets_in,
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
  return encode(x, table, index, 1.0);
}

Encoded position_shapes(const Tensor& x, const Tensor&, const Tensor& offsets,
                        const OptionalTensor&, double) {
  return {empty_like_shape(x), empty_shape({x.sym_size(0)}, offsets.options().dtype(at::kLong))};
}

Encoded time_shapes(const Tensor& x, const Tensor& table, const Tensor& offsets, const Tensor&,
                    double unit) {
  return position_shapes(x, table, offsets, {}, unit);
}

// dx and dtable, each undefined if not wanted.
std::tuple<Tensor, Tensor> run_backward(const Tensor& dy_in, const Tensor& index,
                                        int64_t table_rows, double scale,
                                        std::array<bool, 2> wanted) {
  const Tensor dy = dy_in.contiguous();
  const DeviceGuard guard(dy);
  Tensor dx, dtable;
  if (dy.is_cuda()) {
    if (wanted[0]) dx = dy * scale;
    if (wanted[1]) {
      const TableTerms terms{.rows = dy, .ids = index, .more_ids = {}, .weights = {}};
      dtable = table_gradient(terms, table_rows, dy.scalar_type(), /*sparse=*/false);
    }
    return {dx, dtable};
  }
  if (wanted[0]) dx = at::empty(dy.sizes(), dy.options());
  if (wanted[1]) dtable = at::empty({table_rows, dy.size(1)}, dy.options());
  encoding_backward_cpu({.dy = dy.const_data_ptr(),
                         .index = index.const_data_ptr<int64_t>(),
                         .dx = dx.defined() ? dx.mutable_data_ptr() : nullptr,
                         .dtable = dtable.defined() ? dtable.mutable_data_ptr() : nullptr,
                         .tokens = dy.size(0),
                         .dim = dy.size(1),
                         .table_rows = table_rows,
                         .scale = scale},
                        dtype_of(dy));
  return {dx, dtable};
}

std::tuple<Tensor, Tensor> backward_shapes(const Tensor& dy, const Tensor&, c10::SymInt table_rows,
                                           double, std::array<bool, 2> wanted) {
  return {wanted[0] ? empty_like_shape(dy) : Tensor(),
          wanted[1] ? empty_shape({table_rows, dy.sym_size(1)}, dy.options()) : Tensor()};
}

// Gradients of the encoding: for x and table.
void save(AutogradContext* context, const Tensor& table, const Tensor& index, double scale) {
  context->save_for_backward({index});
  context->saved_data["table_rows"] = table.sym_size(0);
  context->saved_data["scale"] = scale;
}

variable_list gradients_of_encoding(AutogradContext* context, const Tensor& dy) {
  static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
  const auto [dx, dtable] =
      op.call(dy, context->get_saved_variables()[0], context->saved_data["table_rows"].toSymInt(),
              context->saved_data["scale"].toDouble(),
              {context->needs_input_grad(0), context->needs_input_grad(1)});
  return {dx, dtable, Tensor(), Tensor(), Tensor()};
}

class PositionEncoding : public torch::autograd::Function<PositionEncoding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& table,
                        const Tensor& offsets, const OptionalTensor& num_targets, double scale) {
    static const auto op = find_operator<decltype(position_shapes)>(kPositionForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [y, index] = op.call(x, table, offsets, num_targets, scale);
    save(context, table, index, scale);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return gradients_of_encoding(context, gradients[0]);
  }
};

class TimeEncoding : public torch::autograd::Function<TimeEncoding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& table,
                        const Tensor& offsets, const Tensor& timestamps, double unit) {
    static const auto op = find_operator<decltype(time_shapes)>(kTimeForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [y, index] = op.call(x, table, offsets, timestamps, unit);
    save(context, table, index, 1.0);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return gradients_of_encoding(context, gradients[0]);
  }
};

Tensor position_without_gradient(const Tensor& x, const Tensor& table, const Tensor& offsets,
                                 const OptionalTensor& num_targets, double scale) {
  static const auto forward = find_operator<decltype(position_shapes)>(kPositionForward);
  return std::get<0>(forward.call(x, table, offsets, num_targets, scale));
}

Tensor position_with_gradient(const Tensor& x, const Tensor& table, const Tensor& offsets,
                              const OptionalTensor& num_targets, double scale) {
  return PositionEncoding::apply(x, table, offsets, num_targets, scale);
}

Tensor time_without_gradient(const Tensor& x, const Tensor& table, const Tensor& offsets,
                             const Tensor& timestamps, double unit) {
  static const auto forward = find_operator<decltype(time_shapes)>(kTimeForward);
  return std::get<0>(forward.call(x, table, offsets, timestamps, unit));
}

Tensor time_with_gradient(const Tensor& x, const Tensor& table, const Tensor& offsets,
                          const Tensor& timestamps, double unit) {
  return TimeEncoding::apply(x, table, offsets, timestamps, unit);
}

}  // namespace
}  // namespace encoding_op

Tensor position_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets,
                         const OptionalTensor& num_targets, double scale) {
  static const auto op =
      find_operator<decltype(encoding_op::position_with_gradient)>("seqfuse::position_encoding");
  return op.call(x, table, offsets, num_targets, scale);
}

Tensor time_encoding(const Tensor& x, const Tensor& table, const Tensor& offsets,
                     const Tensor& timestamps, double unit) {
  static const auto op =
      find_operator<decltype(encoding_op::time_with_gradient)>("seqfuse::time_encoding");
  return op.call(x, table, offsets, timestamps, unit);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace encoding_op;
  Definition(library,
             "position_encoding(Tensor x, Tensor table, Tensor offsets, Tensor? num_targets, "
             "float scale) -> Tensor")
      .made_of_others(&position_without_gradient)
      .autograd(&position_with_gradient);
  Definition(library,
             "position_encoding_forward(Tensor x, Tensor table, Tensor offsets, "
             "Tensor? num_targets, float scale) -> (Tensor, Tensor)")
      .kernels(&run_position, &position_shapes)
      .no_gradient();
  Definition(library,
             "time_encoding(Tensor x, Tensor table, Tensor offsets, Tensor timestamps, float unit) "
             "-> Tensor")
      .made_of_others(&time_without_gradient)
      .autograd(&time_with_gradient);
  Definition(library,
             "time_encoding_forward(Tensor x, Tensor table, Tensor offsets, Tensor timestamps, "
             "float unit) -> (Tensor, Tensor)")
      .kernels(&run_time, &time_shapes)
      .no_gradient();
  Definition(library,
             "encoding_backward(Tensor dy, Tensor index, SymInt table_rows, float scale, "
             "bool[2] wanted) -> (Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
