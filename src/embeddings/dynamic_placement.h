// Dynamic tables as a configuration asks for them, and the memory that they need.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "embeddings/dynamic_table.h"

namespace seqfuse::embeddings {

// The options of a table of one process. A table has no more rows than num_rows, its vocabulary.
DynamicRowsOptions dynamic_options(const std::string& name, int64_t num_rows, int64_t dim,
                                   const InitialRows& initial, const DynamicPlacement& dynamic,
                                   const Placement& placement);

std::shared_ptr<EmbeddingTable> make_dynamic_table(const std::string& name, int64_t num_rows,
                                                   int64_t dim, const InitialRows& initial,
                                                   const DynamicPlacement& dynamic,
                                                   const Placement& placement);

}  // namespace seqfuse::embeddings
