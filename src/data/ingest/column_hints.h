// Advice for a log that lacks a column.
#pragma once

#include <string>
#include <vector>

#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/read/input.h"

namespace seqfuse::data {

// A line for the error, with its newline, or "": the file has another delimiter or format, is no
// log, or the column another name. names: of the file's columns.
std::string missing_column_hint(const DatasetFormat& format, const IngestOptions& options,
                                const std::string& wanted, const std::vector<std::string>& names,
                                const InputMember& member);

}  // namespace seqfuse::data
