// A table that every process has whole.
#pragma once

#include <string>

#include "embeddings/table.h"

namespace seqfuse::embeddings {

class ReplicatedTable : public EmbeddingTable {
 public:
  ReplicatedTable(std::string name, const at::Tensor& rows, distributed::ProcessGroup& group);

  bool is_sharded() const override { return false; }
  bool gradient_is_summed_by_caller() const override { return !has_sparse_gradient(); }
  void fetch(const at::Tensor& ids) override;
  void fetch_all() override {}
  at::Tensor lookup(const at::Tensor& ids) override;
  at::Tensor rows() const override { return weight_; }
  void return_gradients() override;
  at::Tensor gather(const at::Tensor& here) const override;
  void scatter(const at::Tensor& all, at::Tensor here) const override;

 private:
  bool has_sparse_gradient() const { return num_rows_ >= kSparseTableRows; }
};

}  // namespace seqfuse::embeddings
