// Random users in memory, as BenchmarkDatasetArgs describe them: for timing, nothing can be learnt
// from them.
#pragma once

#include <cstdint>
#include <memory>

#include "config/args.h"
#include "data/dataset/dataset.h"

namespace seqfuse::data {

// batch_size * args.num_generated_batches users; the same for the same seed. Items are 1 to the
// size of their table less 1, actions 0 to the size of theirs less 1, without timestamps. An action
// is a mask of at least num_tasks bits: those that its table has no ids for are never set. Throws
// UsageError where item and action do not have the same lengths, or a context feature has more than
// one value.
std::shared_ptr<const Dataset> generate_dataset(const config::BenchmarkDatasetArgs& args,
                                                int64_t batch_size, uint64_t seed,
                                                int64_t num_tasks = 1);

// What of DatasetArgs such a dataset is read with: nine users of ten train, the others are for
// evaluations.
config::DatasetArgs dataset_args_of(const config::BenchmarkDatasetArgs& args);

}  // namespace seqfuse::data
