// Which process has which row of a sharded table, and whom a process asks for the rows it needs.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace seqfuse::embeddings {

// hash(id) % processes for each id, int64 below 2^32: ids that follow a pattern (all even, one
// block of the newest) spread as evenly as others. The same on every device.
at::Tensor owner_of(const at::Tensor& ids, int64_t processes);

// The ids among 0..num_rows - 1 that rank has, ascending.
at::Tensor ids_of(int64_t rank, int64_t processes, int64_t num_rows);

struct RequestPlan {
  at::Tensor ids;               // each id that is needed once, ascending
  at::Tensor by_owner;          // places in ids: those of process 0, then of 1, ..., each ascending
  std::vector<int64_t> counts;  // how many of each process
};

// ids int64 [n], repeated, any order. table: its name, for the error about an id outside it. Waits
// for a GPU.
RequestPlan plan_requests(const at::Tensor& ids, int64_t processes, int64_t num_rows,
                          const std::string& table);

}  // namespace seqfuse::embeddings
