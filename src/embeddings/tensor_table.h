// The common part of replicated and sharded tables: fixed vocabulary, this process's rows in one
// tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "embeddings/table.h"

namespace seqfuse::embeddings {

class TensorTable : public EmbeddingTable {
 public:
  int64_t num_rows() const override { return num_rows_; }
  int64_t rows_here() const override { return weight_.size(0); }
  at::TensorOptions options() const override;
  at::Tensor weight() const override { return weight_; }

  void make_state(OptimizerKind kind, bool averaged) override;
  void zero_gradients() override;
  at::Tensor gradient() const override;
  void apply_gradients(UpdateStep& step) override;
  void swap_averages() override;
  void restart_averages() override;

  TableContents contents() const override;
  void check(const TableContents& given, const LoadOptions& options) const override;
  void load(const TableContents& given, const LoadOptions& options) override;

 protected:
  TensorTable(std::string name, int64_t num_rows, at::Tensor weight,
              distributed::ProcessGroup& group);

  // Larger tables have sparse gradients (placement.h).
  bool has_sparse_gradient() const { return num_rows_ >= kSparseTableRows; }

  // here: [rows here, ...], one row per row of this process. Returns all rows in order of id in the
  // first process (on the CPU if the table is sharded), undefined in the others.
  virtual at::Tensor gather(const at::Tensor& here) const = 0;
  // The reverse: copies count rows from the first process to the positions of their ids in here, in
  // all processes. ids [count] (undefined: 0..count - 1) and given, [count, ...] for each tensor of
  // here, are undefined in the other processes.
  virtual void scatter(int64_t count, const at::Tensor& ids, const std::vector<at::Tensor>& given,
                       const std::vector<at::Tensor>& here) = 0;

  const int64_t num_rows_;
  at::Tensor weight_;

 private:
  TableContents here() const;

  std::optional<ParameterState> state_;
};

}  // namespace seqfuse::embeddings
