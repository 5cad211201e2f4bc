// An embedding table as models, optimisers and checkpoints see it, wherever its rows are.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "embeddings/placement.h"
#include "embeddings/table_contents.h"

namespace seqfuse::embeddings {

class UpdateStep;

// A batch: fetch() its ids, lookup() any of them in the forward pass, backward. The next fetch(),
// or return_gradients() after the last batch of a step, brings the gradients to the rows. A step
// ends with apply_gradients(): a table updates its own rows and keeps their optimiser state,
// because only the table knows where its rows are.
//
// With several processes, all make the same calls of fetch, fetch_all, return_gradients, contents
// and load in the same order: a process without ids passes none. Ids are int64 on the rows'
// device.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const std::string& name() const { return name_; }
  int64_t dim() const { return dim_; }
  // Of all processes together. A table of fixed vocabulary has ids 0..num_rows - 1.
  virtual int64_t num_rows() const = 0;
  virtual int64_t rows_here() const = 0;
  virtual at::TensorOptions options() const = 0;  // dtype and device of the rows

  // The rows of this process [rows here, D], if they are one tensor: a parameter of the model, which
  // moves with the model and whose gradient backward fills. Undefined for a table that adds and
  // removes rows.
  virtual at::Tensor weight() const = 0;
  // Each process has rows of its own, and gradient() is the sum over all processes.
  virtual bool is_sharded() const = 0;
  // weight().grad() is dense and of this process alone: the caller sums it with those of others.
  virtual bool gradient_is_summed_by_caller() const = 0;

  // Rows of these ids [n], in any order and repeated, can be looked up until the next fetch.
  // An id without a row is an Error in a table of fixed vocabulary; other tables create the row.
  virtual void fetch(const at::Tensor& ids) = 0;
  virtual void fetch_all() = 0;
  // Rows [n, D] of fetched ids [n], differentiable.
  virtual at::Tensor lookup(const at::Tensor& ids) = 0;
  // After fetch_all(): [num_rows, D], differentiable.
  virtual at::Tensor rows() const = 0;
  virtual void return_gradients() = 0;

  // Creates the optimiser state, all zero, before the first update, when the rows are on their final
  // device. averaged: with averages of the rows (OptimizerArgs.average_decay). Only tables that are
  // trained have state.
  virtual void make_state(UpdateKind kind, bool averaged) = 0;
  virtual void zero_gradients() = 0;
  // The gradient that apply_gradients() will use, unscaled: [rows here, D], or [n, D] for only those
  // n rows that have one, each once. Undefined if no row has one.
  virtual at::Tensor gradient() const = 0;
  // Updates rows and state (update/update_step.h), without weight decay; moves the averages. CUDA graphs
  // record this, so numbers that change between steps must be read from step.device().
  virtual void apply_gradients(UpdateStep& step) = 0;
  // Exchanges the rows with their averages; sets the averages to the rows.
  virtual void swap_averages() = 0;
  virtual void restart_averages() = 0;

  // Returns all rows with their state in the first process, empty contents in the others. A
  // replicated table shares its storage: save before the next step. Otherwise on the CPU.
  virtual TableContents contents() const = 0;
  // Throws DataError naming the table if load() would (table_contents.h). Exchanges nothing.
  virtual void check(const TableContents& given, const LoadOptions& options) const = 0;
  // Loads rows and state by id from the arguments of the first process; those of the others are
  // ignored. Converts dtypes. Calls check() first.
  virtual void load(const TableContents& given, const LoadOptions& options) = 0;

 protected:
  EmbeddingTable(std::string name, int64_t dim, distributed::ProcessGroup& group);

  const std::string name_;
  const int64_t dim_;
  distributed::ProcessGroup& group_;
};

using Tables = std::vector<EmbeddingTable*>;

// What a process does that has no batch while the others have one.
void fetch_nothing(const Tables& tables);

// The next so many rows [n, D] of initial weights.
using DrawRows = std::function<at::Tensor(int64_t)>;

// Replicated or sharded, as placement says. Every process draws all rows, in blocks, so that
// initial weights do not depend on how many there are.
std::shared_ptr<EmbeddingTable> make_table(const std::string& name, int64_t num_rows,
                                           const DrawRows& draw, const Placement& placement);

}  // namespace seqfuse::embeddings
