#include "embeddings/table.h"

#include <utility>

#include "embeddings/dynamic_placement.h"
#include "embeddings/replicated_table.h"
#include "embeddings/sharded_table.h"

namespace seqfuse::embeddings {

EmbeddingTable::EmbeddingTable(std::string name, int64_t dim, distributed::ProcessGroup& group)
    : name_(std::move(name)), dim_(dim), group_(group) {}

void fetch_nothing(const Tables& tables) {
  for (EmbeddingTable* table : tables) {
    table->fetch(torch::empty({0}, table->options().dtype(torch::kLong)));
  }
}

std::shared_ptr<EmbeddingTable> make_table(const std::string& name, int64_t num_rows,
                                           const DrawRows& draw, const Placement& placement,
                                           int64_t dim, const InitialRows& initial) {
  if (const DynamicPlacement* dynamic = placement.dynamic_of(name)) {
    return make_dynamic_table(name, num_rows, dim, initial, *dynamic, placement);
  }
  if (placement.shards(name, num_rows)) {
    return std::make_shared<ShardedTable>(name, num_rows, draw, *placement.group);
  }
  return std::make_shared<ReplicatedTable>(name, draw(num_rows), *placement.group);
}

}  // namespace seqfuse::embeddings
