// Which tables every process has whole, and which are spread over the processes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "distributed/process_group.h"

namespace seqfuse::embeddings {

// Tables of this many rows and more have sparse gradients: only the rows of a step's ids are
// computed, and updated. Smaller ones have dense gradients, so that optimisers act exactly as
// published. It is also where `auto` begins to shard.
constexpr int64_t kSparseTableRows = 262'144;

struct Placement {
  distributed::ProcessGroup* group = &distributed::ProcessGroup::single();
  // By table: data_parallel, model_parallel or auto, as EmbeddingArgs.sharding_type; auto where a
  // table is not listed.
  std::map<std::string, std::string> sharding_types;

  // Never of one process.
  bool shards(const std::string& table, int64_t num_rows) const;
};

}  // namespace seqfuse::embeddings
