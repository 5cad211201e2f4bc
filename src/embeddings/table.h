// An embedding table as models, optimisers and checkpoints see it, wherever its rows are.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "embeddings/placement.h"

namespace seqfuse::embeddings {

// A batch: fetch() its ids, lookup() any of them in the forward pass, backward. The next fetch(),
// or return_gradients() after the last batch of a step, brings the gradients to the rows.
//
// Of several processes, each makes the same calls of fetch, fetch_all, return_gradients, gather and
// scatter in the same order: with no ids where it has none. Ids are int64 on the weight's device.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const std::string& name() const { return name_; }
  int64_t num_rows() const { return num_rows_; }  // ids are 0..num_rows - 1
  int64_t dim() const { return weight_.size(1); }

  // The rows that this process trains, [rows here, D]: the optimiser's parameter.
  const at::Tensor& weight() const { return weight_; }
  // Each process has rows of its own, and weight().grad() is the sum over all processes.
  virtual bool is_sharded() const = 0;
  // weight().grad() is dense and of this process alone: the caller sums it with those of others.
  virtual bool gradient_is_summed_by_caller() const = 0;

  // Rows of these ids [n], in any order and repeated, can be looked up until the next fetch.
  // Throws Error on an id outside the table.
  virtual void fetch(const at::Tensor& ids) = 0;
  virtual void fetch_all() = 0;
  // Rows [n, D] of fetched ids [n], differentiable.
  virtual at::Tensor lookup(const at::Tensor& ids) = 0;
  // After fetch_all(): [num_rows, D], differentiable.
  virtual at::Tensor rows() const = 0;
  virtual void return_gradients() = 0;

  // here: weight() or something else with a row for each of its rows, [rows here, ...]. All rows in
  // the order of their ids, in the first process, on the CPU where the table is sharded; undefined
  // in the others.
  virtual at::Tensor gather(const at::Tensor& here) const = 0;
  // The reverse: all (of the first process) to each row's place. dtypes are converted.
  virtual void scatter(const at::Tensor& all, at::Tensor here) const = 0;

 protected:
  EmbeddingTable(std::string name, int64_t num_rows, at::Tensor weight,
                 distributed::ProcessGroup& group);

  const std::string name_;
  const int64_t num_rows_;
  at::Tensor weight_;
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
