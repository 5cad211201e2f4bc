// The memory that a dynamic table takes, known before any of it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {

struct MemoryBytes {
  int64_t device = 0;
  int64_t host = 0;  // pinned memory for rows of a table on a GPU; on the CPU all is `device`
};

struct MemoryPlan {
  HashTableOptions options;  // their capacity is that of the plan
  int64_t row_bytes = 0;
  MemoryBytes full;  // with memory for all rows
  MemoryBytes
      growing;  // at most while it grows, when the smaller table is there too; at least `full`

  bool on_gpu() const { return options.device.is_cuda(); }
  // Less what is allocated already: what it may still take.
  MemoryBytes left(const HashTable& table) const;
};

// Of a table with so many rows. Without those of the options: a table of one of several processes.
MemoryPlan plan_memory(HashTableOptions options, int64_t capacity);

// Bytes that are free now, within the limit of the process's control group. A table on the CPU has only
// the host's, as `device`.
MemoryBytes free_memory(at::Device device);

// Whether the table may grow into its memory; else it must be allocated whole at first.
bool can_grow(const MemoryPlan& plan, const MemoryBytes& free);
// Empty if the whole table fits; else what is needed, what is free, and what would fit.
std::string why_memory_does_not_suffice(const MemoryPlan& plan, const MemoryBytes& free);

}  // namespace seqfuse::embeddings
