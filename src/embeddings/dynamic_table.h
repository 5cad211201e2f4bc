// A table of ids that are not known in advance; with several processes each owns a part of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "embeddings/dynamic/dynamic_rows.h"
#include "embeddings/dynamic_exchange.h"
#include "embeddings/table.h"

namespace seqfuse::embeddings {

// adamw: adam, since tables have no weight decay.
RowOptimizer row_optimizer(OptimizerKind kind);

// fetch() gives new ids a row if gradients are recorded; under NoGradGuard it changes nothing, and ids
// without a row read the shared row. Rows are float32. A step updates the rows of its own ids;
// Adam's corrections count all steps.
//
// In a checkpoint the state of a table has, besides the optimiser's tensors: shared_row, scores,
// touched, slots and table (capacity and calls), of ids that have no row yet counted_ids,
// counted_scores and so on, and of several processes shards (the rows and the capacity of each). A
// table of the same capacity and as many processes continues bit for bit, evictions included; a
// table with a fixed vocabulary takes the shared row for ids without one.
class DynamicTable : public EmbeddingTable {
 public:
  // The capacity of options is that of all processes. vocabulary: fetch_all() has ids
  // 0..vocabulary - 1. The optimiser of options is set by make_state.
  DynamicTable(DynamicRowsOptions options, int64_t vocabulary, distributed::ProcessGroup& group,
               IdDealing dealing = {});

  int64_t num_rows() const override { return vocabulary_; }
  int64_t rows_here() const override { return rows_->table().size(); }  // waits for a GPU
  at::TensorOptions options() const override;
  at::Tensor weight() const override { return {}; }
  bool is_sharded() const override { return group_.several(); }
  bool gradient_is_summed_by_caller() const override { return false; }

  void fetch(const at::Tensor& ids) override;
  void fetch_all() override;
  at::Tensor lookup(const at::Tensor& ids) override;
  at::Tensor rows() const override;
  void return_gradients() override;

  // averaged: throws UsageError, since such a table has no averages.
  void make_state(OptimizerKind kind, bool averaged) override;
  void zero_gradients() override;
  at::Tensor gradient() const override;
  void apply_gradients(UpdateStep& step) override;
  void swap_averages() override {}
  void restart_averages() override {}

  TableContents contents() const override;
  void check(const TableContents& given, const LoadOptions& options) const override;
  void load(const TableContents& given, const LoadOptions& options) override;

  // Whether rows in use are in a cache in the GPU's memory, the others in the host's.
  bool is_cached() const { return options_.table.cached; }
  // Of a cached table: begins to bring the rows of the next batch's ids, which may be only some of them,
  // into the cache, beside what the current stream has after the last fetch. Call it between fetch and
  // backward. Rows, evictions and losses are the same as without. With several processes all must call
  // it, as fetch: ids are exchanged. Other tables: nothing.
  void prefetch(const at::Tensor& ids);

  const DynamicRows& dynamic_rows() const { return *rows_; }

 private:
  struct Fetched {
    DynamicExchange::Request request;  // with several processes
    DynamicRows::Batch batch;          // of the rows here
    at::Tensor ids;                    // ascending
    at::Tensor rows;                   // [ids, dim], a leaf
  };
  struct Returned {
    DynamicRows::Batch batch;
    at::Tensor gradient;  // float32 [unique, dim]; zeros for ids without a row
  };
  void add_gradient(const DynamicRows::Batch& batch, const at::Tensor& gradient) const;
  void take_gradient() const;
  void combine() const;
  std::vector<std::string> state_names() const;
  DynamicRowsContents to_dynamic(const TableContents& given, const LoadOptions& options) const;
  TableContents to_table(const DynamicRowsContents& dynamic) const;

  const int64_t vocabulary_, capacity_;
  const DynamicExchange exchange_;
  DynamicRowsOptions options_;  // of this process
  std::optional<DynamicRows> rows_;
  bool trained_ = false;
  mutable Fetched fetched_;
  mutable std::vector<Returned> returned_;  // of each batch; of the step once combined
};

}  // namespace seqfuse::embeddings
