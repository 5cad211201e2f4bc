// Rows of a Parquet file for open_table_rows(): fields of one value, and lists.
#pragma once

#include <memory>
#include <string>

#include "serving/batch/table_rows.h"

namespace seqfuse::serving {

// Throws DataError.
std::unique_ptr<TableRows> open_parquet_table_rows(const std::string& file);

}  // namespace seqfuse::serving
