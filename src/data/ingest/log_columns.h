// Where a log file keeps what: its columns by name, and those of its folders' names.
#pragma once

#include <string>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/read/input.h"

namespace seqfuse::data {

// names: the file's columns. The file's own columns go before those of folders (dt=2024-01-01).
// Throws DataError with the names there are if one that is wanted is missing.
EventColumns find_event_columns(const DatasetFormat& format, const IngestOptions& options,
                                std::vector<std::string> names, const InputMember& member);

}  // namespace seqfuse::data
