#include "ops/torch/embedding/table.h"

#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "ops/kernels/jagged/embedding.h"
#include "ops/kernels/jagged/row_sums.h"
#include "ops/torch/cuda.h"

namespace seqfuse::ops {
namespace {

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

// "[2, 5]", the index of an element in a contiguous tensor.
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

#ifdef SEQFUSE_HAS_CUDA
// Returned in float32.
Tensor dense_gradient_on_gpu(const TableTerms& terms, const RowSumParams& params) {
  const DeviceGuard guard(terms.rows);
  Tensor sums = at::zeros({params.num_rows, params.dim}, terms.rows.options().dtype(at::kFloat));
  Tensor sorted_ids, order;  // of all terms, position by position
  if (at::globalContext().deterministicAlgorithms()) {
    Tensor ids = terms.ids.to(at::kInt).unsqueeze(1);
    if (terms.more_ids.defined()) ids = at::cat({ids, terms.more_ids}, 1);
    std::tie(sorted_ids, order) = at::sort(ids.flatten(), /*stable=*/true, 0, false);
  }
  C10_CUDA_CHECK(
      row_sums_cuda({.terms = params,
                     .sums = sums.mutable_data_ptr<float>(),
                     .sorted_ids = order.defined() ? sorted_ids.const_data_ptr<int32_t>() : nullptr,
                     .order = order.defined() ? order.const_data_ptr<int64_t>() : nullptr},
                    dtype_of(terms.rows), c10::cuda::getCurrentCUDAStream()));
  return sums;
}
#endif

}  // namespace

void check_table(const Arg& table) {
  check_rank(table, 2, "[V, D]");
  check_float(table);
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

Tensor checked_ids(const Arg& arg, at::ScalarType type, const Tensor& table) {
  check_on(arg, table.device());
  TORCH_CHECK_VALUE(arg.tensor.scalar_type() == type, label(arg), " is ", arg.tensor.scalar_type(),
                    "; expected ", type, type == at::kInt ? " (int32)" : " (int64)");
  const Tensor ids = arg.tensor.contiguous();
  if (!ids.is_cpu()) return ids;  // reading them would synchronise
  if (type == at::kInt) {
    check_range<int32_t>(arg, ids, table.size(0));
  } else {
    check_range<int64_t>(arg, ids, table.size(0));
  }
  return ids;
}

Tensor table_gradient(const TableTerms& terms, int64_t num_rows, at::ScalarType type, bool sparse) {
  const RowSumParams params{
      .rows = terms.rows.const_data_ptr(),
      .ids = terms.ids.const_data_ptr<int64_t>(),
      .more_ids = terms.more_ids.defined() ? terms.more_ids.const_data_ptr<int32_t>() : nullptr,
      .weights = data_or_null(terms.weights),
      .positions = terms.rows.size(0),
      .columns = 1 + (terms.more_ids.defined() ? terms.more_ids.size(1) : 0),
      .dim = terms.rows.size(1),
      .num_rows = num_rows};
#ifdef SEQFUSE_HAS_CUDA
  if (terms.rows.is_cuda()) return dense_gradient_on_gpu(terms, params).to(type);
#endif
  const auto sums = make_row_sums_cpu(params, dtype_of(terms.rows));
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
