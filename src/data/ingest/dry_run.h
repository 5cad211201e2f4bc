// A look at a log before it is preprocessed: what its columns hold, the first rows as they are
// understood, the time span, and what is suspicious. Nothing is written.
#pragma once

#include <cstdint>
#include <string>

#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"

namespace seqfuse::data {

struct DryRun {
  std::string report;  // lines for people
  std::string error;   // why preprocess would refuse the input, or ""
};

// Text and Parquet that is looked at: about the first 16 MiB, at least one piece of each file until
// then.
inline constexpr int64_t kDryRunBytes = int64_t{1} << 24;

// Malformed rows are counted, not refused. Throws IoError; UsageError where the request is wrong.
DryRun dry_run(const DatasetFormat& format, IngestOptions options,
               int64_t most_bytes = kDryRunBytes);

}  // namespace seqfuse::data
