// Decides which tables are replicated in every process and which are sharded.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "distributed/process_group.h"

namespace seqfuse::embeddings {

// Tables of at least this many rows have sparse gradients: only the rows of a step's ids are
// computed and updated. Smaller tables have dense gradients, so that optimisers act exactly as
// published. `auto` shards from this size on.
constexpr int64_t kSparseTableRows = 262'144;

struct Placement {
  distributed::ProcessGroup* group = &distributed::ProcessGroup::single();
  // By table: data_parallel, model_parallel or auto, as in EmbeddingArgs.sharding_type; auto if not
  // listed.
  std::map<std::string, std::string> sharding_types;

  // Always false with one process.
  bool shards(const std::string& table, int64_t num_rows) const;
};

}  // namespace seqfuse::embeddings
