// Decides which tables are replicated in every process, which are sharded, and which are dynamic.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "config/choices.h"
#include "distributed/process_group.h"
#include "embeddings/update/parameter_state.h"

namespace seqfuse::embeddings {

// Tables of at least this many rows have sparse gradients: only the rows of a step's ids are
// computed and updated. Smaller tables have dense gradients, so that optimisers act exactly as
// published. Sharding::by_size shards from this size on.
constexpr int64_t kSparseTableRows = 262'144;

// A table that gives ids a row when training first has them (dynamic_table.h): the parameters of
// DynamicEmbeddingArgs, with their meanings and defaults there.
struct DynamicPlacement {
  int64_t capacity = 0;
  config::EvictStrategy evict_strategy = config::EvictStrategy::lru;
  config::IdDistribution dist_type = config::IdDistribution::hash_roundrobin;
  // On a GPU. All processes together.
  std::optional<int64_t> bytes_on_gpu, rows_on_gpu;
  std::optional<double> share_on_gpu;
  bool caching = false;
  OptimizerKind optimizer = OptimizerKind::sgd;  // how many bytes a row has
};

struct Placement {
  distributed::ProcessGroup* group = &distributed::ProcessGroup::single();
  // By table; by_size if not listed.
  std::map<std::string, config::Sharding> sharding_types;
  std::map<std::string, DynamicPlacement> dynamic;  // by table; others have a fixed vocabulary
  c10::Device device = c10::kCPU;  // of dynamic tables, which do not move with the model
  uint64_t seed = 0;               // of their initial rows

  // Always false with one process.
  bool shards(const std::string& table, int64_t num_rows) const;
  // Null: the table has a fixed vocabulary.
  const DynamicPlacement* dynamic_of(const std::string& table) const;
};

}  // namespace seqfuse::embeddings
