// Tensors with a row for each row of an embedding table, "tables.item" and "tables.item.exp_avg",
// on their way between processes and checkpoints. A process has all rows or its own; a checkpoint
// has all, in the order of their ids, whatever the processes.
#pragma once

#include <string>

#include "embeddings/table.h"
#include "training/checkpoint/checkpoint.h"

namespace seqfuse::training {

class TableTensors {
 public:
  explicit TableTensors(embeddings::Tables tables);

  // To be saved: collected weights and the optimiser's state get all rows, in the first process.
  // Every process calls it.
  void gather(Checkpoint& checkpoint) const;

  // Loaded by the first process alone: takes out what is for sharded tables, for share(), and
  // leaves the tensors of this process in its place. here: weights and the optimiser's state by
  // name. Throws DataError naming what has another shape.
  TensorMap take_whole(Checkpoint& checkpoint, const TensorMap& here) const;

  // All of here becomes what the first process has; rows of sharded tables, which differ from
  // process to process, come from its whole, or stay as they are. Every process calls it.
  void share(const TensorMap& here, const TensorMap& whole, distributed::ProcessGroup& group) const;

 private:
  // null: of no table.
  const embeddings::EmbeddingTable* table_of(const std::string& name) const;

  embeddings::Tables tables_;
};

}  // namespace seqfuse::training
