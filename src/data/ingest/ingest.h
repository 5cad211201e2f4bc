// Reads an input into bounded memory: events grouped by user, vocabularies, side tables.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/dataset/manifest.h"
#include "data/ingest/column_survey.h"
#include "data/ingest/event_rows.h"
#include "data/ingest/event_store.h"
#include "data/ingest/formats.h"
#include "data/ingest/side_tables.h"

namespace seqfuse::data {

enum class BadRows { error, skip };
enum class InputKind {
  log,
  processed_seqs,  // one user per row, with lists
  item_lines,      // lines "user item item ..."
};

struct IngestOptions {
  std::filesystem::path input;
  InputKind kind = InputKind::log;
  BadRows on_bad_row = BadRows::error;
  BlankTime blank_time = BlankTime::error;
  std::optional<Encoding> encoding;       // of all text files; default: by the format
  std::optional<TimeFormat> time_format;  // of times in text; default: numbers or ISO 8601
  bool given_split = false;  // files of training, validation and test, read in this order
  // For a look at the first rows: sees the rows of text files and Parquet files; nothing is read
  // beyond about this many bytes (0: all).
  ColumnSurvey* survey = nullptr;
  int64_t most_bytes = 0;
};

struct Ingested {
  explicit Ingested(std::filesystem::path scratch, int64_t buffer_bytes)
      : events(std::move(scratch), buffer_bytes, tables.users) {}

  IdTables tables;
  EventStore events;
  std::unordered_map<uint32_t, std::vector<uint32_t>> row_context;  // by user code; from the log
  int64_t context_conflicts = 0;  // rows whose context differs from that of the user's first row
  SideTable users, titles;
  bool has_users = false, has_titles = false;
  bool has_time = false, has_actions = false;
  std::optional<int64_t> units_per_second;  // of times with a unit, once one was read
  std::string units_in, numbers_in;         // the first file with such times, with plain numbers
  std::vector<std::string> logs;            // names, in the order read
  std::vector<SourceEntry> sources;
  int64_t rows = 0, bad_rows = 0;
  std::vector<std::string> bad_examples;  // "file:line: reason", the first few
  std::vector<std::string> not_read;      // names of files without rows
  std::vector<Event> first_events;        // of the logs, the first few
  bool all_read = true;                   // false: IngestOptions::most_bytes ended it
  // First occurrence, "file:line", of each action that is not a number, by code.
  std::unordered_map<uint32_t, std::string> word_actions;

  void add_bad_example(std::string example);  // if there is room
};

// Reads everything the format names and adds it to out, which may hold events already. Throws
// DataError: no log found, a malformed row (unless skipped).
void ingest(const DatasetFormat& format, const IngestOptions& options, Ingested& out);

}  // namespace seqfuse::data
