// Rows of ids that come and go, as training and serving use them: batches with repeated ids,
// admission by frequency, a shared row for unknown ids, updates by the optimiser.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "embeddings/dynamic/failure_watch.h"
#include "embeddings/dynamic/hash_table.h"
#include "embeddings/dynamic/side_stream.h"
#include "embeddings/dynamic/table_snapshot.h"

namespace seqfuse::embeddings {

using ops::hash_table::RowOptimizer;
using ops::hash_table::RowUpdate;

struct DynamicRowsOptions {
  HashTableOptions table;  // its state is set from the optimiser
  RowOptimizer optimizer = RowOptimizer::sgd;
  // An id gets a row when it has been in batches so often, repeats included. Until then it has the
  // shared row, which is not trained.
  int64_t admit_from = 1;
  // Ids without a row whose frequency is known; the least frequent are forgotten first. 0: as many as
  // the capacity.
  int64_t counted_ids = 0;
  bool failure_is_error = true;  // an id that finds no place; else it has the shared row
};

struct DynamicRowsContents {
  HashTableContents table;
  HashTableContents counted;  // frequencies of ids without a row; empty if all ids are admitted
  at::Tensor shared_row;      // float32 [dim]; load: undefined: it stays as it is
};

// Never a silent zero: an id without a row has the shared row, and is counted.
class DynamicRows {
 public:
  // Throws UsageError for options out of range.
  explicit DynamicRows(DynamicRowsOptions options);

  const DynamicRowsOptions& options() const { return options_; }
  // To clear or load it use the methods below, which know of what else there is.
  HashTable& table() {
    join();
    return table_;
  }
  const HashTable& table() const {
    join();
    return table_;
  }

  // The rows of a batch's ids.
  struct Batch {
    ops::hash_table::UniqueIds unique;
    at::Tensor slots;     // int64 [unique]; -1: the shared row
    int64_t changes = 0;  // of the table when they were found
    at::Tensor each;  // int64 [n]: of fetch_each, the ids; slots are then [n], and unique is empty
  };
  struct Scores {
    at::Tensor custom;            // int64 [n], for Score::custom: of equal ids the highest counts
    std::optional<int64_t> step;  // for Score::step
    at::Tensor times;             // int64 [n]: how often each id occurs; undefined: once
  };
  // Training: ids, int64 of any shape, on the table's device, get rows. Throws Error if one finds no
  // place; on a GPU a later call does, or check_failures. Throws UsageError, and changes nothing, if
  // scores or a step are given for a table of another Score, are missing, or are not one for each id.
  Batch fetch(const at::Tensor& ids, const Scores& scores);
  // The same, for rows() and update() alone: saves time on a GPU where HashTable::takes_repeated().
  Batch fetch_each(const at::Tensor& ids, const Scores& scores);
  // Evaluation and serving: changes nothing but the count of unknown ids. times: as in Scores.
  Batch find(const at::Tensor& ids, const at::Tensor& times = {});

  // Of a cached table: brings the rows of the next batch into the cache while the current stream goes on
  // with what comes after the last call of this class. ids(): int64 of any shape, repeats allowed; called
  // with another stream as the current one; not called if the table has no cache. Ids without a row get
  // none. Rows, scores and evictions are the same as without this call. after_all: it begins when the
  // current stream has done all that it has now, such as making the ids.
  void prefetch(const std::function<at::Tensor()>& ids, bool after_all = false);

  // The rows of ids, float32 [n, dim], as rows(find(ids)) has them, in less time.
  at::Tensor look_up(const at::Tensor& ids);

  // float32 [n, dim]: the row of each id of the batch.
  at::Tensor rows(const Batch& batch) const;
  // float32 [unique, dim].
  at::Tensor unique_rows(const Batch& batch) const;
  // gradients: float32 [n, dim], of rows(); those of equal ids are added first. Ids with the shared
  // row, or evicted since, are left out.
  void update(const RowUpdate& update, const Batch& batch, const at::Tensor& gradients);
  // gradients: of unique_rows().
  void update_unique(const RowUpdate& update, const Batch& batch, const at::Tensor& gradients,
                     const ops::hash_table::StepNumbers& step = {});

  // Removes all rows and frequencies, and sets the counts, unknown ids' too, to 0. The shared row stays.
  void clear();

  // float32 [dim]: the row of ids that have none.
  const at::Tensor& shared_row() const { return shared_row_; }

  // These wait for a GPU.
  int64_t unknown() const;  // ids of find, repeats included, that had the shared row
  void check_failures() const;
  // since: of HashTable::contents; frequencies are all there. Throws as check_failures.
  DynamicRowsContents contents(int64_t since = 0) const;
  // Contents of a moment that are copied while training goes on (table_snapshot.h). start and finish:
  // between steps. copy: after a lookup, beside what the current stream has next; false: nothing is left
  // to copy. finish: throws as check_failures. A second start drops the first.
  void start_snapshot();
  bool copy_snapshot(int64_t slots);
  struct Snapshot {
    TableSnapshot::Taken table;
    DynamicRowsContents others;  // without the table
  };
  Snapshot finish_snapshot();
  // As HashTable::load: all of the contents or, with DataError, nothing.
  void load(const DynamicRowsContents& contents);
  // Throws what load does, except for want of memory.
  void check(const DynamicRowsContents& contents) const;

 private:
  void join() const {
    if (side_) side_->join();
  }
  void mark() const {
    if (side_) side_->mark();
  }
  at::Tensor admitted(const Batch& batch, at::Tensor& often);
  at::Tensor slots_of(const Batch& batch) const;
  void check_sizes(const DynamicRowsContents& contents) const;

  DynamicRowsOptions options_;
  HashTable table_;
  std::optional<HashTable> counted_;
  at::Tensor shared_row_, unknown_;
  mutable FailureWatch failures_;
  mutable std::unique_ptr<SideStream> side_;  // of a cached table, and for snapshots
  std::optional<TableSnapshot> snapshot_;
};

}  // namespace seqfuse::embeddings
