#include "ops/kernels/full_softmax.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/ops.h"
#include "ops/torch/table.h"

namespace seqfuse::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// visit(begin, end, products) for blocks of positions; products = hidden[begin:end] rows^T, in
// memory that the next block reuses.
template <class Visit>
void for_each_block(const Tensor& hidden, const Tensor& rows, Visit&& visit) {
  // A block stays in the CPU's caches, or is large enough to keep a GPU busy: 256 MiB.
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

class FullSoftmax : public torch::autograd::Function<FullSoftmax> {
 public:
  // columns: the place of each target in catalogue; seen: of what each position adds to what is
  // left out, begins: of its sequence, both none where nothing is.
  static Tensor forward(AutogradContext* context, const Tensor& hidden_in, const Tensor& table,
                        const Tensor& columns, const Tensor& catalogue, double temperature,
                        const OptionalTensor& seen_in, const OptionalTensor& begins_in) {
    const DeviceGuard guard(hidden_in);
    const auto type = sum_type(hidden_in.scalar_type());
    const Tensor hidden = hidden_in.to(type), rows = table.index_select(0, catalogue).to(type);
    const Tensor seen = seen_in.value_or(Tensor()), begins = begins_in.value_or(Tensor());
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
    context->save_for_backward({hidden_in, table, columns, catalogue, seen, begins});
    context->saved_data["temperature"] = temperature;
    return losses;
  }

  // Makes the products again: with gradients for both arguments, four multiplications in all
  // instead of the three that keeping [T, C] would take.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &table = saved[1], &columns = saved[2], &catalogue = saved[3], &seen = saved[4],
                 &begins = saved[5];
    const DeviceGuard guard(table);
    const auto type = sum_type(table.scalar_type());
    const Tensor hidden = saved[0].to(type), rows = table.index_select(0, catalogue).to(type);
    const Tensor weights = gradients[0].contiguous();
    Tensor dhidden = at::empty(hidden.sizes(), hidden.options()), drows;
    if (context->needs_input_grad(1)) drows = at::zeros_like(rows);
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
                   .temperature = context->saved_data["temperature"].toDouble()},
                  dtype_of(hidden));
      Tensor block = dhidden.slice(0, begin, end);
      at::mm_out(block, products, rows);
      if (drows.defined()) drows.addmm_(products.t(), hidden.slice(0, begin, end));
    });
    variable_list result(7);
    result[0] = dhidden.to(table.scalar_type());
    if (drows.defined()) {
      result[1] = at::zeros(table.sizes(), table.options())
                      .index_copy_(0, catalogue, drows.to(table.scalar_type()));
    }
    return result;
  }
};

// The place of each id in catalogue; missing where it does not list it.
Tensor columns_or(int64_t missing, const Tensor& ids, const Tensor& catalogue, int64_t num_rows) {
  const DeviceGuard guard(ids);
  return at::full({num_rows}, missing, ids.options())
      .index_copy_(0, catalogue, at::arange(catalogue.numel(), ids.options()))
      .index_select(0, ids);
}

// The place of each target in catalogue. On a GPU nothing is checked: a target that catalogue does
// not list gets the place of another.
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

// Where the sequence of each position begins: int64 [T].
Tensor sequence_begins(const Arg& offsets, const Tensor& targets) {
  const Tensor checked = checked_offsets(offsets, targets.size(0), "seen", targets.device());
  const DeviceGuard guard(targets);
  return at::repeat_interleave(checked.slice(0, 0, -1), checked.diff(), 0, targets.size(0));
}

}  // namespace

Tensor full_softmax_loss(const Tensor& hidden, const Tensor& table, const Tensor& targets,
                         const Tensor& catalogue, double temperature, const OptionalTensor& seen,
                         const OptionalTensor& offsets) {
  constexpr const char* kOp = "full_softmax_loss";
  const Arg targets_arg{kOp, "targets", targets}, catalogue_arg{kOp, "catalogue", catalogue};
  check_softmax_loss(kOp, hidden, table, targets, temperature);
  check_rank(catalogue_arg, 1, "[C]");
  TORCH_CHECK_VALUE(catalogue.numel() > 0, label(catalogue_arg), " is empty; expected some ids");
  const Tensor ids = checked_ids(catalogue_arg, at::kLong, table);
  const Tensor columns =
      target_columns(checked_ids(targets_arg, at::kLong, table), ids, table.size(0));
  if (!seen) {
    return FullSoftmax::apply(hidden, table, columns, ids, temperature, OptionalTensor(),
                              OptionalTensor());
  }
  const Arg seen_arg{kOp, "seen", *seen};
  TORCH_CHECK_VALUE(offsets.has_value(), label(seen_arg), " is given without offsets");
  check_sizes(seen_arg, {targets.size(0)}, "[T], as targets");
  const Tensor begins = sequence_begins({kOp, "offsets", *offsets}, targets);
  const Tensor seen_columns =
      columns_or(-1, checked_ids(seen_arg, at::kLong, table), ids, table.size(0));
  return FullSoftmax::apply(hidden, table, columns, ids, temperature, OptionalTensor(seen_columns),
                            OptionalTensor(begins));
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def(
      "full_softmax_loss(Tensor hidden, Tensor table, Tensor targets, Tensor catalogue, "
      "float temperature, Tensor? seen=None, Tensor? offsets=None) -> Tensor",
      &seqfuse::ops::full_softmax_loss);
}
