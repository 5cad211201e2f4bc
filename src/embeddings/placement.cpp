#include "embeddings/placement.h"

namespace seqfuse::embeddings {

bool Placement::shards(const std::string& table, int64_t num_rows) const {
  if (!group->several()) return false;
  const auto found = sharding_types.find(table);
  if (found == sharding_types.end() || found->second == config::Sharding::by_size) {
    return num_rows >= kSparseTableRows;
  }
  return found->second == config::Sharding::model_parallel;
}

const DynamicPlacement* Placement::dynamic_of(const std::string& table) const {
  const auto found = dynamic.find(table);
  return found == dynamic.end() ? nullptr : &found->second;
}

}  // namespace seqfuse::embeddings
