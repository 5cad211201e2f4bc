// Reads a log's text piece by piece: delimited rows, JSON lines, or lines of items.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/ingest/column_survey.h"
#include "data/ingest/event_rows.h"
#include "data/read/json_rows.h"
#include "data/read/text_chunks.h"

namespace seqfuse::data {

enum class RowLayout {
  events,      // delimited: one event per row
  sequences,   // delimited: one user per row, with lists "[1, 2]"
  item_lines,  // "user item item ...", separated by spaces or tabs, or by another delimiter
  json,        // one event per row, as a JSON object
};

// How the rows of one text file are read.
struct TextLayout {
  RowLayout rows = RowLayout::events;
  CsvDialect dialect;
  const char* quote_hint = "";     // for rows whose quotes do not match
  size_t required = 0;             // json: number of first columns that each row must have
  ColumnSurvey* survey = nullptr;  // sees all rows, if given; then rows are read by one thread
};

// The delimiter of item_lines that stands for any run of spaces and tabs.
inline constexpr const char* kAnySpace = " ";

// The state of a thread that parses pieces.
class RowReader {
 public:
  // columns and layout must outlive it.
  RowReader(const EventColumns& columns, const TextLayout& layout, IdTables& tables);

  TextChunk chunk;  // to be parsed

  // Parses the chunk.
  void parse(ParsedRows& out);

  // json, per column: whether some row had it.
  const std::vector<bool>& seen() const { return json_->seen(); }

 private:
  // Returns why the row is malformed, or "".
  std::string add(const RowSplitter& rows, int64_t line, ParsedRows& out);
  std::string add_items(const RowSplitter& rows, int64_t line, ParsedRows& out);
  std::string add_json(std::string_view row, int64_t line, ParsedRows& out);

  const EventColumns& columns_;
  const TextLayout& layout_;
  RowMapper mapper_;
  std::optional<JsonRow> json_;
  std::vector<std::string_view> words_;
};

// Readers that no thread is using.
class RowReaders {
 public:
  RowReaders(const EventColumns& columns, const TextLayout& layout, IdTables& tables)
      : columns_(columns), layout_(layout), tables_(tables) {}

  std::unique_ptr<RowReader> take();
  void give_back(std::unique_ptr<RowReader> reader);

  // json: the columns that no row had. Call when all readers were given back.
  std::vector<std::string> columns_not_seen() const;

 private:
  const EventColumns& columns_;
  const TextLayout& layout_;
  IdTables& tables_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<RowReader>> idle_;
};

}  // namespace seqfuse::data
