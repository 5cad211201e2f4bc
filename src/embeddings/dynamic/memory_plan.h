// The memory that a dynamic table takes, known before any of it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "embeddings/dynamic/hash_table.h"

namespace seqfuse::embeddings {

struct MemoryPlan {
  int64_t capacity = 0, row_bytes = 0;
  int64_t device_bytes = 0;  // keys, and the rows or the cache
  int64_t host_bytes = 0;    // pinned memory of the host for rows of a table on a GPU
  bool on_gpu = false;
};

// Of a table with so many rows, once it has grown: while it grows, it takes up to half as much again.
MemoryPlan plan_memory(const HashTableOptions& options, int64_t capacity);

struct FreeMemory {
  int64_t device = 0, host = 0;  // bytes
};
// Now. A table on the CPU has only the host's.
FreeMemory free_memory(at::Device device);

// Empty if the plan fits; else what is needed, what is free, and what would fit.
std::string why_memory_does_not_suffice(const MemoryPlan& plan, const FreeMemory& free);

}  // namespace seqfuse::embeddings
