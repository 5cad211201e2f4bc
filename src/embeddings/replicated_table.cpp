#include "embeddings/replicated_table.h"

#include <utility>

#include "distributed/gradient_buckets.h"
#include "ops/torch/ops.h"

namespace seqfuse::embeddings {

ReplicatedTable::ReplicatedTable(std::string name, const at::Tensor& rows,
                                 distributed::ProcessGroup& group)
    : TensorTable(std::move(name), rows.size(0), rows, group) {}

void ReplicatedTable::fetch(const at::Tensor& /*ids*/) {
  // Every process has all rows.
}

at::Tensor ReplicatedTable::lookup(const at::Tensor& ids) {
  return ops::embedding_lookup(weight_, ids, has_sparse_gradient());
}

void ReplicatedTable::return_gradients() {
  if (has_sparse_gradient()) distributed::sum_table_gradient(group_, weight_);
}

at::Tensor ReplicatedTable::gather(const at::Tensor& here) const {
  return group_.is_first() ? here : at::Tensor();
}

void ReplicatedTable::scatter(int64_t count, const at::Tensor& ids,
                              const std::vector<at::Tensor>& given,
                              const std::vector<at::Tensor>& here) {
  if (group_.is_first()) {
    for (size_t i = 0; i < here.size(); ++i) {
      if (ids.defined()) {
        here[i].index_copy_(0, ids.to(here[i].device()), given[i].to(here[i].options()));
      } else {
        here[i].slice(0, 0, count).copy_(given[i]);
      }
    }
  }
  group_.broadcast(here, "broadcast of table " + name_);
}

}  // namespace seqfuse::embeddings
