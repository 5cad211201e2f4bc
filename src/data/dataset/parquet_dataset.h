// A dataset written by another program: DIRECTORY/sequences/*.parquet with the columns of
// docs/data.md and no manifest. Read into memory; counts and vocabulary sizes follow from the
// values.
#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset/dataset.h"

namespace seqfuse::data {

bool has_parquet_sequences(const std::filesystem::path& directory);

// Throws DataError naming file and column for a missing, null or nested column, lists of different
// lengths, negative values, decreasing times, or a user with two rows.
std::shared_ptr<const Dataset> open_parquet_dataset(const std::filesystem::path& directory);

}  // namespace seqfuse::data
