// Random users in memory, described by BenchmarkDatasetArgs. For timing only: there is nothing to
// learn from them.
#pragma once

#include <cstdint>
#include <memory>

#include "config/args.h"
#include "data/dataset/dataset.h"

namespace seqfuse::data {

// Its directory, name and vocabulary hash.
inline constexpr const char* kGeneratedDataset = "generated";

// batch_size * args.num_generated_batches users, the same for the same seed, without timestamps.
// Items are in [1, rows of their table), actions in [0, rows of their table). An action is a mask
// of at least num_tasks bits; bits that no id of its table contains are never set. Throws
// UsageError if item and action have different lengths, or if a context feature has more than
// one value.
std::shared_ptr<const Dataset> generate_dataset(const config::BenchmarkDatasetArgs& args,
                                                int64_t batch_size, uint64_t seed,
                                                int64_t num_tasks = 1);

// The DatasetArgs for such a dataset: nine of ten users are for training, the others for
// evaluation.
config::DatasetArgs dataset_args_of(const config::BenchmarkDatasetArgs& args);

}  // namespace seqfuse::data
