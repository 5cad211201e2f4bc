#include "ops/kernels/embedding.h"

#include <torch/library.h>
#include <torch/torch.h>

#include "ops/torch/checks.h"
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
    const Tensor table = table_in.contiguous();
    const int64_t count = ids.size(0), dim = table.size(1);
    Tensor out = at::empty({count, dim}, table.options());
    embedding_forward_cpu({.table = table.const_data_ptr(),
                           .ids = ids.const_data_ptr<int64_t>(),
                           .out = out.mutable_data_ptr(),
                           .count = count,
                           .dim = dim},
                          dtype_of(table));
    context->save_for_backward({ids});
    context->saved_data["num_rows"] = table.size(0);
    context->saved_data["sparse"] = sparse;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor ids = context->get_saved_variables()[0];
    const Tensor dout = gradients[0].contiguous();
    return {table_gradient({.rows = dout.const_data_ptr(),
                            .ids = ids.const_data_ptr<int64_t>(),
                            .more_ids = nullptr,
                            .weights = nullptr,
                            .positions = dout.size(0),
                            .columns = 1,
                            .dim = dout.size(1),
                            .num_rows = context->saved_data["num_rows"].toInt()},
                           dout.scalar_type(), context->saved_data["sparse"].toBool()),
            Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding_lookup(const Tensor& table, const Tensor& ids, bool sparse) {
  check_table({"embedding_lookup", "table", table});
  const Arg ids_arg{"embedding_lookup", "ids", ids};
  check_rank(ids_arg, 1, "[T]");
  return Embedding::apply(table, checked_ids(ids_arg, at::kLong, table.size(0)), sparse);
}

}  // namespace seqfuse::ops

TORCH_LIBRARY_FRAGMENT(seqfuse, library) {
  library.def("embedding_lookup(Tensor table, Tensor ids, bool sparse) -> Tensor",
              &seqfuse::ops::embedding_lookup);
}
