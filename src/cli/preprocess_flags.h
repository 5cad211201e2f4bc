// The flags of `seqfuse preprocess`, and what they say about the input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "data/dataset/manifest.h"
#include "data/ingest/formats.h"
#include "data/ingest/preprocess.h"

namespace seqfuse::cli {

struct PreprocessFlags {
  std::string dataset_name = "csv", input, output, extend, format = "log", write_processed_seqs;
  std::string on_bad_row = "error", join = "inner", blank_time = "error", memory_limit = "1GB";
  std::string encoding, delimiter, quote = "double", comment, time_format, order;
  std::string user_column = "user_id", item_column = "item_id", time_column;
  std::string title_file, title_column, title_delimiter;
  std::vector<std::string> action_columns, context_columns, header;
  bool force = false, dry_run = false, deduplicate = false, iterative = false, given_split = false;
  bool titles_if_present = false;  // --input may lack the file of titles
  int threads = 0;
  int64_t min_user_events = 1, min_item_events = 1;
};

void declare_preprocess_flags(CLI::App& app, PreprocessFlags& flags);

// --extend: sets the flags that describe the data set to what it records. Throws UsageError for one
// that was given another value.
void adopt_record(const CLI::App& app, const data::ManifestFile& manifest, PreprocessFlags& flags);

// Throw UsageError for flags that do not fit together.
data::DatasetFormat format_of(const PreprocessFlags& flags);
data::PreprocessOptions options_of(const PreprocessFlags& flags);

}  // namespace seqfuse::cli
