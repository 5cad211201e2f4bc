// The interface of embedding tables for models, optimisers and checkpoints, wherever the rows are.
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

// Per batch: fetch() its ids, lookup() any of them in the forward pass, then backward. The next
// fetch(), or return_gradients() after a step's last batch, sends the gradients to the rows. A step
// ends with apply_gradients(): a table updates its own rows and keeps their optimiser state,
// because only the table knows where its rows are.
//
// With several processes, all must call fetch, fetch_all, return_gradients, contents and load in
// the same order; a process without ids passes none. Ids are int64 on the rows' device.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const std::string& name() const { return name_; }
  int64_t dim() const { return dim_; }
  // Over all processes. A table with a fixed vocabulary has ids 0..num_rows - 1.
  virtual int64_t num_rows() const = 0;
  virtual int64_t rows_here() const = 0;
  virtual at::TensorOptions options() const = 0;  // dtype and device of the rows

  // This process's rows [rows here, D] if they are one tensor: a model parameter that moves with
  // the model and whose gradient backward fills. Undefined for a table that adds and removes rows.
  virtual at::Tensor weight() const = 0;
  // Each process owns different rows; gradient() is then the sum over all processes.
  virtual bool is_sharded() const = 0;
  // weight().grad() is dense and local to this process: the caller sums it over the processes.
  virtual bool gradient_is_summed_by_caller() const = 0;

  // Makes the rows of these ids [n], any order, repeats allowed, available to lookup() until the
  // next fetch. An id without a row is an Error in a table with a fixed vocabulary; other tables
  // create the row.
  virtual void fetch(const at::Tensor& ids) = 0;
  virtual void fetch_all() = 0;
  // Rows [n, D] of fetched ids [n], differentiable.
  virtual at::Tensor lookup(const at::Tensor& ids) = 0;
  // After fetch_all(): [num_rows, D], differentiable.
  virtual at::Tensor rows() const = 0;
  virtual void return_gradients() = 0;

  // Creates the optimiser state, all zeros. Call before the first update, when the rows are on
  // their final device. averaged: also keep averages of the rows (OptimizerArgs.average_decay).
  // Only trained tables have state.
  virtual void make_state(OptimizerKind kind, bool averaged) = 0;
  virtual void zero_gradients() = 0;
  // The unscaled gradient that apply_gradients() will use: [rows here, D], or [n, D] for only the n
  // rows that have one, each once. Undefined if no row has one.
  virtual at::Tensor gradient() const = 0;
  // Updates rows and state (update/update_step.h), without weight decay, and the averages. CUDA
  // graphs record this, so numbers that change between steps must be read from step.device().
  virtual void apply_gradients(UpdateStep& step) = 0;
  // Swaps the rows with their averages; sets the averages to the rows.
  virtual void swap_averages() = 0;
  virtual void restart_averages() = 0;

  // Returns all rows with their state in the first process, empty contents in the others. A
  // replicated table returns its own storage: save before the next step. A sharded one returns CPU
  // tensors.
  virtual TableContents contents() const = 0;
  // Throws DataError naming the table if load() would (table_contents.h). No communication.
  virtual void check(const TableContents& given, const LoadOptions& options) const = 0;
  // Loads rows and state by id from the first process's arguments; the others' are ignored.
  // Converts dtypes. Calls check() first.
  virtual void load(const TableContents& given, const LoadOptions& options) = 0;

 protected:
  EmbeddingTable(std::string name, int64_t dim, distributed::ProcessGroup& group);

  const std::string name_;
  const int64_t dim_;
  distributed::ProcessGroup& group_;
};

using Tables = std::vector<EmbeddingTable*>;

// Takes part in the fetches of a batch that only other processes have.
void fetch_nothing(const Tables& tables);

// Draws the next n rows [n, D] of initial weights.
using DrawRows = std::function<at::Tensor(int64_t)>;

// The distribution of initial weights: uniform in [-spread, spread), or normal with the standard
// deviation spread, cut off at -2 and 2. A dynamic table draws a row by it, from seed and id.
struct InitialRows {
  bool normal = false;
  double spread = 0;
};

// Makes a replicated, sharded or dynamic table [num_rows, dim], as placement says. Every process draws
// all rows, in blocks, so that initial weights do not depend on the number of processes.
std::shared_ptr<EmbeddingTable> make_table(const std::string& name, int64_t num_rows,
                                           const DrawRows& draw, const Placement& placement,
                                           int64_t dim = 0, const InitialRows& initial = {});

}  // namespace seqfuse::embeddings
