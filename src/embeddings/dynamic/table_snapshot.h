// A copy of a table's rows that is made in pieces while training goes on, and is right at one moment.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {

// Rows are copied slot by slot. Those that batches have had since the start are read again at the end, so
// that all are those of the end. Of a table that has grown, or was loaded or cleared, all are.
class TableSnapshot {
 public:
  // Between steps: when every batch has had its update. Allocates memory of the host for all rows.
  explicit TableSnapshot(const HashTable& table);

  // Copies the rows of the next `slots` slots; false: there are none left. On a GPU the copy is enqueued
  // on the current stream, and the host waits only for the previous one.
  bool copy(const HashTable& table, int64_t slots);

  struct Taken {
    HashTableContents keys;  // of all rows, without them
    at::Tensor by_slot;      // float32 [slots, width]: the rows as they were copied
    at::Tensor late;         // int64 [k]: indices into keys of those that are too old there
    at::Tensor late_rows;    // float32 [k, width]
  };
  // Between steps: the table of now. Waits for a GPU, for the keys and the late rows.
  Taken finish(const HashTable& table);
  // The rows of the keys: needs nothing of the table, so it can be done by another thread.
  static at::Tensor rows_of(const Taken& taken);

 private:
  void take_staged();

  int64_t since_, moves_, next_ = 0;
  at::Tensor by_slot_;
  at::Tensor staged_;  // pinned; of slots next_ - its rows..next_ - 1
  std::optional<c10::Event> copied_;
  bool is_staged_ = false;
  int64_t staged_rows_ = 0;
};

}  // namespace seqfuse::embeddings
