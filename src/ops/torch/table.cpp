#include "ops/torch/table.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "ops/kernels/embedding.h"

namespace seqfuse::ops {
namespace {

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

// "[2, 5]", the place of an element in a contiguous tensor.
std::string place(const Tensor& tensor, int64_t element) {
  std::vector<int64_t> indices(tensor.dim());
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    indices[d] = element % tensor.size(d);
    element /= tensor.size(d);
  }
  return c10::str(at::IntArrayRef(indices));
}

template <class Id>
void check_range(const Arg& arg, const Tensor& ids, int64_t num_rows) {
  const Id* values = ids.const_data_ptr<Id>();
  const int64_t i = first_outside_cpu(values, ids.numel(), num_rows);
  TORCH_CHECK_INDEX(i < 0, label(arg), place(ids, i), " is ", values[i],
                    "; expected an id of at least 0 and below ", num_rows,
                    ", the rows of the table");
}

}  // namespace

void check_table(const Arg& table) {
  check_rank(table, 2, "[V, D]");
  check_cpu_float(table);
  TORCH_CHECK_VALUE(table.tensor.size(1) > 0, label(table), " is ", table.tensor.sizes(),
                    "; expected at least one column");
  TORCH_CHECK_VALUE(table.tensor.size(0) <= kMaxRows, label(table), " has ", table.tensor.size(0),
                    " rows; expected at most ", kMaxRows);
}

void check_softmax_loss(const char* op, const Tensor& hidden, const Tensor& table,
                        const Tensor& targets, double temperature) {
  const Arg hidden_arg{op, "hidden", hidden}, table_arg{op, "table", table};
  check_table(table_arg);
  check_rank(hidden_arg, 2, "[T, D]");
  check_like(hidden_arg, table_arg);
  check_sizes(hidden_arg, {hidden.size(0), table.size(1)}, "the columns of table");
  TORCH_CHECK_VALUE(hidden.size(0) <= kMaxRows, label(hidden_arg), " has ", hidden.size(0),
                    " rows; expected at most ", kMaxRows);
  TORCH_CHECK_VALUE(temperature > 0, op, ": temperature is ", temperature,
                    "; expected a positive number");
  check_sizes({op, "targets", targets}, {hidden.size(0)}, "one for each row of hidden");
}

Tensor checked_ids(const Arg& arg, at::ScalarType type, int64_t num_rows) {
  check_cpu(arg);
  TORCH_CHECK_VALUE(arg.tensor.scalar_type() == type, label(arg), " is ", arg.tensor.scalar_type(),
                    "; expected ", type, type == at::kInt ? " (int32)" : " (int64)");
  const Tensor ids = arg.tensor.contiguous();
  if (type == at::kInt) {
    check_range<int32_t>(arg, ids, num_rows);
  } else {
    check_range<int64_t>(arg, ids, num_rows);
  }
  return ids;
}

Tensor table_gradient(const RowSumParams& params, at::ScalarType type, bool sparse) {
  const auto sums = make_row_sums_cpu(params, type == at::kDouble ? DType::f64 : DType::f32);
  const std::array<int64_t, 2> sizes{params.num_rows, params.dim};
  if (!sparse) {
    Tensor gradient = at::empty(sizes, type);
    sums->write_dense(gradient.mutable_data_ptr());
    return gradient;
  }
  const int64_t touched = sums->count_touched();
  Tensor ids = at::empty({1, touched}, at::kLong), rows = at::empty({touched, params.dim}, type);
  sums->write_touched(ids.mutable_data_ptr<int64_t>(), rows.mutable_data_ptr());
  return at::_sparse_coo_tensor_unsafe(ids, rows, sizes, rows.options().layout(at::kSparse),
                                       /*is_coalesced=*/true);
}

}  // namespace seqfuse::ops
