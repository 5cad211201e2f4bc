// Top-level columns of a Parquet file, for the rest of the data layer. Parquet stores a nested
// column (struct, list, map) as several leaf columns, and its readers select those.
#pragma once

#include <arrow/api.h>
#include <parquet/arrow/reader.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace seqfuse::data {

// The leaf columns of top-level fields, in the order of the file.
std::vector<int> leaf_columns(const parquet::arrow::FileReader& reader,
                              std::span<const int> fields);

// Throws DataError that names file, column and type if a row can hold more than one value.
void check_single_value(const arrow::Field& field, const std::string& file);

// Unwraps dictionary and extension types. Throws DataError; what: file and column.
std::shared_ptr<arrow::Array> plain_values(std::shared_ptr<arrow::Array> array,
                                           const std::string& what);
// Converts to strings, which are UTF-8 only if the source is. A timestamp becomes its integer in
// the stored unit. Throws DataError.
std::shared_ptr<arrow::StringArray> as_strings(std::shared_ptr<arrow::Array> array,
                                               const std::string& what);

}  // namespace seqfuse::data
