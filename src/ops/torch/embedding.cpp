#include "ops/kernels/embedding.h"

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

class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& table_in, const Tensor& ids,
                        bool sparse) {
    const DeviceGuard guard(table_in);
    context->save_for_backward({ids});
    context->saved_data["num_rows"] = table_in.size(0);
    context->saved_data["sparse"] = sparse;
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

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor ids = context->get_saved_variables()[0];
    const Tensor dout = gradients[0].contiguous();
    const int64_t num_rows = context->saved_data["num_rows"].toInt();
    const bool sparse = context->saved_data["sparse"].toBool();
    if (sparse && dout.is_cuda()) {
      // How many rows are touched is not known without waiting for the GPU.
      const Tensor dtable =
          at::_sparse_coo_tensor_unsafe(ids.unsqueeze(0), dout, {num_rows, dout.size(1)},
                                        dout.options().layout(at::kSparse), /*is_coalesced=*/false);
      return {dtable, Tensor(), Tensor()};
    }
    const TableTerms terms{.rows = dout, .ids = ids, .more_ids = {}, .weights = {}};
    return {table_gradient(terms, num_rows, dout.scalar_type(), sparse), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding_lookup(const Tensor& table, const Tensor& ids, bool sparse) {
  check_table({"embedding_lookup", "table", table});
  const Arg ids_arg{"embedding_lookup", "ids", ids};
  check_rank(ids_arg, 1, "[T]");
  return Embedding::apply(table, checked_ids(ids_arg, at::kLong, table), sparse);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def("embedding_lookup(Tensor table, Tensor ids, bool sparse) -> Tensor",
              &seqfuse::ops::embedding_lookup);
}
