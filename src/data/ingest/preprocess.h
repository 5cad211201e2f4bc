// Converts raw interaction logs to a dataset directory: streamed, in bounded memory, on all cores.
// The output depends only on the input and the options, not on threads or memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/manifest.h"
#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"

namespace seqfuse::data {

enum class Join { inner, outer };

struct PreprocessOptions {
  IngestOptions ingest;
  std::filesystem::path output;
  bool force = false;                       // replace an existing dataset
  int64_t memory_limit = int64_t{1} << 30;  // bytes for events; vocabularies need more
  Join join = Join::inner;   // of log files, where the format's published rule joins them
  bool deduplicate = false;  // drop events equal to an earlier one in user, item, action and time
  int64_t min_user_events = 1, min_item_events = 1;
  bool iterative = false;  // count again after each round of these filters, until none has fewer
  std::filesystem::path
      extend;  // a data set whose events come before those of the input; empty: none
};

struct PreprocessResult {
  ManifestFile manifest;
  int64_t rows = 0, bad_rows = 0;                   // of the input
  std::vector<std::string> bad_examples, not_read;  // see Ingested
};

// Throws UsageError (output exists), DataError (input) or IoError (disk), and then leaves nothing
// behind.
PreprocessResult preprocess(const DatasetFormat& format, const PreprocessOptions& options);

}  // namespace seqfuse::data
