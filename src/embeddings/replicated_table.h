// A table that every process has in full.
#pragma once

#include <string>
#include <vector>

#include "embeddings/tensor_table.h"

namespace seqfuse::embeddings {

class ReplicatedTable : public TensorTable {
 public:
  ReplicatedTable(std::string name, const at::Tensor& rows, distributed::ProcessGroup& group);

  bool is_sharded() const override { return false; }
  bool gradient_is_summed_by_caller() const override { return !has_sparse_gradient(); }
  void fetch(const at::Tensor& ids) override;
  void fetch_all() override {}
  at::Tensor lookup(const at::Tensor& ids) override;
  at::Tensor rows() const override { return weight_; }
  void return_gradients() override;

 private:
  at::Tensor gather(const at::Tensor& here) const override;
  void scatter(int64_t count, const at::Tensor& ids, const std::vector<at::Tensor>& given,
               const std::vector<at::Tensor>& here) override;
};

}  // namespace seqfuse::embeddings
