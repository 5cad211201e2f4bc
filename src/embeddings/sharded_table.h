// A table whose rows are sharded over the processes by a hash of their ids.
#pragma once

#include <string>
#include <vector>

#include "embeddings/shard_plan.h"
#include "embeddings/tensor_table.h"

namespace seqfuse::embeddings {

// weight() contains the rows of ids_of(rank), in that order. A batch requests each row that it
// needs once from its owner, and returns one gradient for it. Owners add gradients in the order of
// the processes: on the CPU the same bits in every run.
class ShardedTable : public TensorTable {
 public:
  ShardedTable(std::string name, int64_t num_rows, const DrawRows& draw,
               distributed::ProcessGroup& group);

  bool is_sharded() const override { return true; }
  bool gradient_is_summed_by_caller() const override { return false; }
  void fetch(const at::Tensor& ids) override;
  void fetch_all() override;
  at::Tensor lookup(const at::Tensor& ids) override;
  at::Tensor rows() const override;
  void return_gradients() override;

 private:
  ShardedTable(std::string name, int64_t num_rows, const DrawRows& draw,
               distributed::ProcessGroup& group, at::Tensor own_ids);

  // The state of one batch.
  struct Fetched {
    RequestPlan plan;
    std::vector<int64_t> asked_of_me;  // ids requested by each process
    at::Tensor given;                  // rows requested by others: passes gradients on to weight()
    at::Tensor rows;                   // rows of plan.ids; a leaf
  };
  std::string exchange_of(const char* what) const;
  std::vector<int64_t> exchange_counts(const std::vector<int64_t>& counts) const;

  // Both exchange ids in blocks.
  at::Tensor gather(const at::Tensor& here) const override;
  void scatter(int64_t count, const at::Tensor& ids, const std::vector<at::Tensor>& given,
               const std::vector<at::Tensor>& here) override;
  void follow_weight();

  at::Tensor
      own_ids_;  // int64 [rows here], ascending; on the device of weight() after follow_weight()
  Fetched fetched_;
};

}  // namespace seqfuse::embeddings
