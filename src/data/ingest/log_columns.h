// Finds the columns of a log file by name, including those in its folders' names.
#pragma once

#include <string>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/read/input.h"

namespace seqfuse::data {

// names: the file's columns, with types if the format has them. They take precedence over those of
// folders (dt=2024-01-01). Throws DataError if a required column is missing (it lists the existing
// ones) or has the wrong type.
EventColumns find_event_columns(const DatasetFormat& format, const IngestOptions& options,
                                std::vector<std::string> names, const InputMember& member);

// The columns that JSON rows must hold (user, item, actions, time), then the optional ones (context):
// those that the names of the file's folders do not hold. required: how many of them must be there.
std::vector<std::string> json_columns(const DatasetFormat& format, const IngestOptions& options,
                                      const InputMember& member, size_t& required);

}  // namespace seqfuse::data
