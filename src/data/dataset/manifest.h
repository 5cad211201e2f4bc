// manifest.json: describes a dataset directory. docs/data.md lists its fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/dataset/typical_events.h"

namespace seqfuse::data {

constexpr int64_t kManifestVersion = 1;

struct ShardEntry {
  std::string file;  // relative to the dataset directory
  int64_t rows = 0, events = 0;
  std::string hash;
};

struct VocabularyEntry {
  std::string file;
  int64_t size = 0;  // ids; their indices are 1..size
  std::string hash;
};

struct SourceEntry {
  std::string name;
  int64_t bytes = 0;  // decompressed
  std::string hash;   // of the decompressed content
};

struct LengthStatistics {
  int64_t min = 0, median = 0, max = 0;
  double mean = 0;
};

// How the log was read: what `preprocess --extend` needs to go on from there.
struct IngestRecord {
  std::string format;  // as --format has it
  std::string user_column, item_column, time_column;
  std::vector<std::string> action_columns;
  std::string title_file, title_column;  // of tables that flags name; "": none
  bool blank_time_between = false, deduplicate = false;
  bool has_time_unit =
      false;  // of the times themselves: dates and timestamps have one, numbers do not
  int64_t rows = 0, bad_rows = 0, context_conflicts = 0, out_of_order = 0, duplicates = 0;
  std::vector<std::string> not_read;
  std::string cannot_extend;  // why adding events would not give what all logs together give, or ""
};

struct ManifestFile {
  Manifest summary;
  std::vector<ShardEntry> shards;
  VocabularyEntry items, users;
  std::vector<VocabularyEntry> context;  // per feature of the summary
  std::vector<SourceEntry> sources;
  std::vector<std::string> rules;  // sentences on how the source was processed
  LengthStatistics lengths;
  std::optional<IngestRecord> ingest;  // absent from data sets of earlier versions
};

// The vocabulary that a run saves of its dataset: RUN/vocabulary/vocabulary.json.
struct VocabularyFile {
  Manifest summary;
  VocabularyEntry items;
  std::vector<VocabularyEntry> context;  // per feature of the summary
  TypicalEvents typical;
};

std::string manifest_to_json(const ManifestFile& manifest);

// Checks every field's type and range and that counts agree; throws DataError naming file and
// field. Reads no other file.
ManifestFile manifest_from_json(std::string_view json, const std::string& file);

std::string vocabulary_to_json(const VocabularyFile& vocabulary);

// Checks as manifest_from_json() does.
VocabularyFile vocabulary_from_json(std::string_view json, const std::string& file);

// "xxh3:..." over the hashes of all vocabularies. If two datasets have the same, their indices mean
// the same ids.
std::string vocabulary_hash(const ManifestFile& manifest);

}  // namespace seqfuse::data
