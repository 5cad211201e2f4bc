#include "ops/kernels/softmax/full_softmax.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/embedding/table.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace full_softmax_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kOp = "full_softmax_loss";
constexpr const char* kForward = "seqfuse::full_softmax_loss_forward";
constexpr const char* kBackward = "seqfuse::full_softmax_loss_backward";

// Calls visit(begin, end, products) for blocks of positions, with products = hidden[begin:end]
// rows^T in memory that the next block reuses.
template <class Visit>
void for_each_block(const Tensor& hidden, const Tensor& rows, Visit&& visit) {
  // A block fits in the CPU's caches, or is large enough to keep a GPU busy: 256 MiB.
  const int64_t elements = hidden.is_cpu() ? 1024 * 1024 : 64 * 1024 * 1024, min_positions = 64;
  const int64_t positions = hidden.size(0), columns = rows.size(0);
  const int64_t block = std::min(positions, std::max(elements / columns, min_positions));
  const Tensor memory = at::empty({block, columns}, hidden.options());
  for (int64_t begin = 0; begin < positions; begin += block) {
    const int64_t end = std::min(positions, begin + block);
    Tensor products = memory.slice(0, 0, end - begin);
    at::mm_out(products, hidden.slice(0, begin, end), rows.t());
    visit(begin, end, products);
  }
}

const int64_t* ids_from(const Tensor& ids, int64_t begin) {
  return ids.defined() ? ids.const_data_ptr<int64_t>() + begin : nullptr;
}

// The index of each id in catalogue; `missing` if it is not listed.
Tensor columns_or(int64_t missing, const Tensor& ids, const Tensor& catalogue, int64_t num_rows) {
  const DeviceGuard guard(ids);
  return at::full({num_rows}, missing, ids.options())
      .index_copy_(0, catalogue, at::arange(catalogue.numel(), ids.options()))
      .index_select(0, ids);
}

// The index of each target in catalogue. Not checked on a GPU: a target that catalogue does not
// list gets another one's index.
Tensor target_columns(const Tensor& targets, const Tensor& catalogue, int64_t num_rows) {
  if (targets.is_cuda()) {
    return columns_or(0, targets, catalogue, num_rows);
  }
  std::vector<int64_t> column_of(num_rows, -1);
  const int64_t* ids = catalogue.const_data_ptr<int64_t>();
  for (int64_t c = 0; c < catalogue.numel(); ++c) {
    int64_t& column = column_of[ids[c]];
    TORCH_CHECK_VALUE(column < 0, "full_softmax_loss: catalogue[", c, "] is ", ids[c],
                      ", as catalogue[", column, "] is; expected every id at most once");
    column = c;
  }
  Tensor columns = at::empty_like(targets);
  const int64_t* target = targets.const_data_ptr<int64_t>();
  int64_t* out = columns.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < targets.numel(); ++t) {
    out[t] = column_of[target[t]];
    TORCH_CHECK_VALUE(out[t] >= 0, "full_softmax_loss: targets[", t, "] is ", target[t],
                      ", which catalogue does not list; expected one of its ", catalogue.numel(),
                      " ids");
  }
  return columns;
}

// Where each position's sequence starts: int64 [T].
Tensor sequence_begins(const Arg& offsets, const Tensor& targets) {
  const Tensor checked = checked_offsets(offsets, targets.size(0), "seen", targets.device());
  const DeviceGuard guard(targets);
  return at::repeat_interleave(checked.slice(0, 0, -1), checked.diff(), 0, targets.size(0));
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Losses [T] and, for the backward pass, int64 [T] each: the catalogue index of each target; the
// index of the id that each position adds to the seen ones; where its sequence starts. The last two
// are undefined if nothing is left out.
Forward run_forward(const Tensor& hidden_in, const Tensor& table, const Tensor& targets_in,
                    const Tensor& catalogue_in, double temperature, const OptionalTensor& seen_in,
                    const OptionalTensor& offsets) {
  const Arg targets_arg{kOp, "targets", targets_in}, catalogue_arg{kOp, "catalogue", catalogue_in};
  check_softmax_loss(kOp, hidden_in, table, targets_in, temperature);
  check_rank(catalogue_arg, 1, "[C]");
  TORCH_CHECK_VALUE(catalogue_in.numel() > 0, label(catalogue_arg), " is empty; expected some ids");
  const Tensor catalogue = checked_ids(catalogue_arg, at::kLong, table);
  const Tensor columns =
      target_columns(checked_ids(targets_arg, at::kLong, table), catalogue, table.size(0));
  Tensor seen, begins;
  if (seen_in) {
    const Arg seen_arg{kOp, "seen", *seen_in};
    TORCH_CHECK_VALUE(offsets.has_value(), label(seen_arg), " is given without offsets");
    check_sizes(seen_arg, {targets_in.size(0)}, "[T], as targets");
    begins = sequence_begins({kOp, "offsets", *offsets}, targets_in);
    seen = columns_or(-1, checked_ids(seen_arg, at::kLong, table), catalogue, table.size(0));
  }
  const DeviceGuard guard(hidden_in);
  const auto type = sum_type(hidden_in.scalar_type());
  const Tensor hidden = hidden_in.to(type), rows = table.index_select(0, catalogue).to(type);
  Tensor losses = at::empty({hidden.size(0)}, hidden.options());
  for_each_block(hidden, rows, [&](int64_t begin, int64_t end, const Tensor& products) {
    SEQFUSE_RUN(hidden, full_softmax,
                {.products = products.mutable_data_ptr(),
                 .targets = columns.slice(0, begin).const_data_ptr<int64_t>(),
                 .losses = losses.slice(0, begin).mutable_data_ptr(),
                 .weights = nullptr,
                 .seen = ids_from(seen, 0),
                 .seen_begin = ids_from(begins, begin),
                 .seen_end = begin + 1,
                 .rows = end - begin,
                 .columns = rows.size(0),
                 .temperature = temperature},
                dtype_of(hidden));
  });
  return {losses, columns, seen, begins};
}

Forward forward_shapes(const Tensor& hidden, const Tensor&, const Tensor& targets, const Tensor&,
                       double, const OptionalTensor& seen, const OptionalTensor&) {
  const auto like_targets = [&](bool present) {
    return present ? empty_like_shape(targets) : Tensor();
  };
  return {empty_shape({hidden.sym_size(0)}, sum_options(hidden)), like_targets(true),
          like_targets(seen.has_value()), like_targets(seen.has_value())};
}

// dhidden and dtable, undefined if not wanted. Recomputes the products: with both gradients, four
// multiplications in all instead of the three that keeping [T, C] would need.
std::tuple<Tensor, Tensor> run_backward(const Tensor& dlosses, const Tensor& hidden_in,
                                        const Tensor& table, const Tensor& columns,
                                        const Tensor& catalogue, double temperature,
                                        const OptionalTensor& seen_in,
                                        const OptionalTensor& begins_in, bool wants_table) {
  const DeviceGuard guard(table);
  const Tensor seen = seen_in.value_or(Tensor()), begins = begins_in.value_or(Tensor());
  const auto type = sum_type(table.scalar_type());
  const Tensor hidden = hidden_in.to(type), rows = table.index_select(0, catalogue).to(type);
  const Tensor weights = dlosses.contiguous();
  Tensor dhidden = at::empty(hidden.sizes(), hidden.options()), drows, dtable;
  if (wants_table) drows = at::zeros_like(rows);
  for_each_block(hidden, rows, [&](int64_t begin, int64_t end, const Tensor& products) {
    SEQFUSE_RUN(hidden, full_softmax,
                {.products = products.mutable_data_ptr(),
                 .targets = columns.slice(0, begin).const_data_ptr<int64_t>(),
                 .losses = nullptr,
                 .weights = weights.slice(0, begin).const_data_ptr(),
                 .seen = ids_from(seen, 0),
                 .seen_begin = ids_from(begins, begin),
                 .seen_end = begin + 1,
                 .rows = end - begin,
                 .columns = rows.size(0),
                 .temperature = temperature},
                dtype_of(hidden));
    Tensor block = dhidden.slice(0, begin, end);
    at::mm_out(block, products, rows);
    if (drows.defined()) drows.addmm_(products.t(), hidden.slice(0, begin, end));
  });
  if (drows.defined()) {
    dtable = at::zeros(table.sizes(), table.options())
                 .index_copy_(0, catalogue, drows.to(table.scalar_type()));
  }
  return {dhidden.to(table.scalar_type()), dtable};
}

std::tuple<Tensor, Tensor> backward_shapes(const Tensor&, const Tensor& hidden, const Tensor& table,
                                           const Tensor&, const Tensor&, double,
                                           const OptionalTensor&, const OptionalTensor&,
                                           bool wants_table) {
  return {empty_like_shape(hidden), wants_table ? empty_like_shape(table) : Tensor()};
}

Tensor without_gradient(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                        const Tensor& catalogue, double temperature, const OptionalTensor& seen,
                        const OptionalTensor& offsets) {
  static const auto op = find_operator<decltype(forward_shapes)>(kForward);
  return std::get<0>(op.call(hidden, table, targets, catalogue, temperature, seen, offsets));
}

class FullSoftmax : public torch::autograd::Function<FullSoftmax> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& table,
                        const Tensor& targets, const Tensor& catalogue, double temperature,
                        const OptionalTensor& seen, const OptionalTensor& offsets) {
    static const auto op = find_operator<decltype(forward_shapes)>(kForward);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [losses, columns, seen_columns, begins] =
        op.call(hidden, table, targets, catalogue, temperature, seen, offsets);
    context->save_for_backward({hidden, table, columns, catalogue, seen_columns, begins});
    context->saved_data["temperature"] = temperature;
    return losses;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    const auto saved = context->get_saved_variables();
    const auto [dhidden, dtable] =
        op.call(gradients[0], saved[0], saved[1], saved[2], saved[3],
                context->saved_data["temperature"].toDouble(), optional_of(saved[4]),
                optional_of(saved[5]), context->needs_input_grad(1));
    return {dhidden, dtable, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

Tensor with_gradient(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                     const Tensor& catalogue, double temperature, const OptionalTensor& seen,
                     const OptionalTensor& offsets) {
  return FullSoftmax::apply(hidden, table, targets, catalogue, temperature, seen, offsets);
}

}  // namespace
}  // namespace full_softmax_op

Tensor full_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                         const Tensor& catalogue, double temperature, const OptionalTensor& seen,
                         const OptionalTensor& offsets) {
  static const auto op =
      find_operator<decltype(full_softmax_op::with_gradient)>("seqfuse::full_softmax_loss");
  return op.call(hidden, table, targets, catalogue, temperature, seen, offsets);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace full_softmax_op;
  Definition(library,
             "full_softmax_loss(Tensor hidden, Tensor table, Tensor targets, Tensor catalogue, "
             "float temperature, Tensor? seen=None, Tensor? offsets=None) -> Tensor")
      .made_of_others(&without_gradient)
      .autograd(&with_gradient);
  Definition(library,
             "full_softmax_loss_forward(Tensor hidden, Tensor table, Tensor targets, "
             "Tensor catalogue, float temperature, Tensor? seen, Tensor? offsets) -> "
             "(Tensor, Tensor, Tensor, Tensor)")
      .kernels(&run_forward, &forward_shapes)
      .no_gradient();
  Definition(library,
             "full_softmax_loss_backward(Tensor dlosses, Tensor hidden, Tensor table, "
             "Tensor columns, Tensor catalogue, float temperature, Tensor? seen, Tensor? begins, "
             "bool wants_table) -> (Tensor, Tensor)")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
