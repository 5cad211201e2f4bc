#include "ops/kernels/jagged/embedding.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include "ops/torch/checks.h"
#include "ops/torch/cuda.h"
#include "ops/torch/dispatch.h"
#include "ops/torch/embedding/table.h"
#include "ops/torch/ops.h"

namespace seqfuse::ops {
namespace embedding_op {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "seqfuse::embedding_lookup";
constexpr const char* kBackward = "seqfuse::embedding_lookup_backward";

Tensor run_forward(const Tensor& table_in, const Tensor& ids_in, bool) {
  check_table({"embedding_lookup", "table", table_in});
  const Arg ids_arg{"embedding_lookup", "ids", ids_in};
  check_rank(ids_arg, 1, "[T]");
  const Tensor ids = checked_ids(ids_arg, at::kLong, table_in);
  const DeviceGuard guard(table_in);
  if (table_in.is_cuda()) return table_in.index_select(0, ids);
  const Tensor table = table_in.contiguous();
  const int64_t count = ids.size(0), dim = table.size(1);
  Tensor out = at::empty({count, dim}, table.options());
  embedding_forward_cpu({.table = table.const_data_ptr(),
                         .ids = ids.const_data_ptr<int64_t>(),
                         .out = out.mutable_data_ptr(),
                         .count = count,
                         .dim = dim},
                        dtype_of(table));
  return out;
}

Tensor forward_shapes(const Tensor& table, const Tensor& ids, bool) {
  return empty_shape({ids.sym_size(0), table.sym_size(1)}, table.options());
}

Tensor run_backward(const Tensor& dout_in, const Tensor& ids_in, int64_t num_rows, bool sparse) {
  const Tensor dout = dout_in.contiguous(), ids = ids_in.contiguous();
  if (sparse && dout.is_cuda()) {
    // Not coalesced: counting the touched rows would synchronise.
    return at::_sparse_coo_tensor_unsafe(ids.unsqueeze(0), dout, {num_rows, dout.size(1)},
                                         dout.options().layout(at::kSparse),
                                         /*is_coalesced=*/false);
  }
  const TableTerms terms{.rows = dout, .ids = ids, .more_ids = {}, .weights = {}};
  return table_gradient(terms, num_rows, dout.scalar_type(), sparse);
}

Tensor backward_shapes(const Tensor& dout, const Tensor&, c10::SymInt num_rows, bool sparse) {
  TORCH_CHECK_VALUE(!sparse,
                    "embedding_lookup: a sparse gradient cannot be traced; pass sparse=False");
  return empty_shape({num_rows, dout.sym_size(1)}, dout.options());
}

class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& table, const Tensor& ids,
                        bool sparse) {
    static const auto op = find_operator<decltype(forward_shapes)>(kName);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Tensor out = op.call(table, ids, sparse);
    context->save_for_backward({ids});
    context->saved_data["num_rows"] = table.sym_size(0);
    context->saved_data["sparse"] = sparse;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto op = find_operator<decltype(backward_shapes)>(kBackward);
    return {
        op.call(gradients[0], context->get_saved_variables()[0],
                context->saved_data["num_rows"].toSymInt(), context->saved_data["sparse"].toBool()),
        Tensor(), Tensor()};
  }
};

Tensor with_gradient(const Tensor& table, const Tensor& ids, bool sparse) {
  return Embedding::apply(table, ids, sparse);
}

}  // namespace
}  // namespace embedding_op

Tensor embedding_lookup(const Tensor& table, const Tensor& ids, bool sparse) {
  static const auto op = find_operator<decltype(embedding_op::forward_shapes)>(embedding_op::kName);
  return op.call(table, ids, sparse);
}

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  using namespace embedding_op;
  Definition(library, "embedding_lookup(Tensor table, Tensor ids, bool sparse=False) -> Tensor")
      .kernels(&run_forward, &forward_shapes)
      .autograd(&with_gradient);
  Definition(library,
             "embedding_lookup_backward(Tensor dout, Tensor ids, SymInt num_rows, bool sparse) -> "
             "Tensor")
      .kernels(&run_backward, &backward_shapes)
      .no_gradient();
}

}  // namespace seqfuse::ops
