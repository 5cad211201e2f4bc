// Learns whether ids of a table found no place, without waiting for a GPU.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {

class FailureWatch {
 public:
  // Call after an insert. Throws Error if ids have found no place since the last error. On a GPU the
  // count of an earlier insert is read, one that has finished.
  void after_insert(const HashTable& table);
  // The same with the count of now: waits for a GPU.
  void check(const HashTable& table);
  // The table was cleared or loaded: its count starts again at 0.
  void restart();

 private:
  void report(const HashTable& table, int64_t failed);

  int64_t reported_ = 0;
  bool pending_ = false;  // the copy below is of an insert that has not been looked at
  at::Tensor copy_;       // of the counters, in pinned memory
  std::optional<c10::Event> copied_;
};

}  // namespace seqfuse::embeddings
