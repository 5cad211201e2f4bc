// Where the rows of a model's embedding tables are, as the configuration asks.
#pragma once

#include <torch/types.h>

#include "config/roots.h"
#include "distributed/process_group.h"
#include "embeddings/placement.h"
#include "models/hstu/model_spec.h"

namespace seqfuse::models::hstu {

// The placement that EmbeddingArgs and DynamicEmbeddingArgs ask for, by feature: 'item', 'action' and
// the context features (BenchmarkDatasetArgs has its own names). device: of dynamic tables. Throws
// UsageError if a table is to be sharded that the model does not have.
embeddings::Placement table_placement(const config::Config& config, const ModelSpec& spec,
                                      distributed::ProcessGroup& group,
                                      at::Device device = at::kCPU);

}  // namespace seqfuse::models::hstu
