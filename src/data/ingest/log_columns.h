// Finds the columns of a log file by name, including those in its folders' names.
#pragma once

#include <string>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/read/input.h"

namespace seqfuse::data {

// names: the file's columns. They take precedence over those of folders (dt=2024-01-01).
// If a required column is missing, throws DataError that lists the existing ones.
EventColumns find_event_columns(const DatasetFormat& format, const IngestOptions& options,
                                std::vector<std::string> names, const InputMember& member);

}  // namespace seqfuse::data
