// Which process owns which row of a sharded table, and which rows to request from whom.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace seqfuse::embeddings {

// hash(id) % processes for each id, int64 below 2^32. Ids with a pattern (all even, one block of
// the newest) spread as evenly as others. The same on every device.
at::Tensor owner_of(const at::Tensor& ids, int64_t processes);

// The ids in [0, num_rows) that rank owns, ascending.
at::Tensor ids_of(int64_t rank, int64_t processes, int64_t num_rows);

struct RequestPlan {
  at::Tensor ids;               // each needed id once, ascending
  at::Tensor by_owner;          // indices into ids, grouped by owner, ascending within each
  std::vector<int64_t> counts;  // ids per owner
};

// ids: int64 [n], any order, repeats allowed. table: its name, for the error about an invalid id.
// Synchronises a GPU.
RequestPlan plan_requests(const at::Tensor& ids, int64_t processes, int64_t num_rows,
                          const std::string& table);

}  // namespace seqfuse::embeddings
