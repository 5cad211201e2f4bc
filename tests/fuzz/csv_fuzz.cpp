// Any text is split into rows and mapped to events without a crash, with the same rows if it is cut
// into chunks of any size.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "data/ingest/event_rows.h"
#include "data/read/csv.h"
#include "data/read/json_rows.h"
#include "data/read/text_chunks.h"
#include "data/read/text_encoding.h"
#include "data/read/time_format.h"
#include "data/read/times.h"
#include "tests/memory_stream.h"

namespace {

using namespace seqfuse::data;

constexpr size_t kLongest = size_t{1} << 28;

using Rows = std::vector<std::vector<std::string>>;

void split(std::string_view text, const CsvDialect& dialect, Rows& out) {
  RowSplitter rows(text, dialect);
  while (rows.next()) {
    if (rows.malformed() != nullptr) {
      out.push_back({"malformed", std::string(rows.row())});
    } else {
      out.emplace_back(rows.fields().begin(), rows.fields().end());
    }
  }
}

Rows split_chunks(std::string_view text, const CsvDialect& dialect, size_t chunk_bytes) {
  seqfuse::MemoryStream stream(text);
  TextChunks chunks(stream, "text", dialect, Encoding::utf8, chunk_bytes);
  Rows rows;
  for (TextChunk chunk; chunks.next(chunk);) split(chunk.text(), dialect, rows);
  return rows;
}

void map_rows(std::string_view text) {
  static EventColumns columns;
  columns.names = {"user", "item", "time", "action"};
  columns.user = 0;
  columns.item = 1;
  columns.time = 2;
  columns.actions = {3};
  columns.action_rule = ActionRule::half_stars;
  static IdTables tables;  // reused, because creating them takes longer than a run
  static RowMapper mapper(columns, tables);
  ParsedRows parsed;
  RowSplitter rows(text, {});
  while (rows.next()) {
    mapper.add(rows.fields(), rows.lines_before(), parsed);
    mapper.add_sequence(rows.fields(), rows.lines_before(), parsed);
    mapper.finish(parsed);
  }
}

// A row that is read has the members that it is said to have.
void parse_json(std::string_view text) {
  static JsonRow row({"a", "b.c"}, 1);
  if (!row.parse(text).empty()) return;
  for (const auto& [name, value] : json_members(text)) {
    if (name == "a") return;
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Byte order marks are removed from files, not from rows.
  const bool has_mark = size > 0 && (data[0] == 0xEF || data[0] >= 0xFE);
  for (const CsvDialect& dialect :
       {CsvDialect{}, CsvDialect{"::", false}, CsvDialect{"::", true}, CsvDialect{"\t", true},
        CsvDialect{",", true, kLongest, "#"}, CsvDialect{",", true, kLongest, "a,"}}) {
    Rows whole;
    split(text, dialect, whole);
    if (whole_rows(text, dialect) > size) std::abort();
    if (!has_mark && whole != split_chunks(text, dialect, 1 + size % 37)) std::abort();
  }
  map_rows(text);
  parse_time_number(text);
  parse_iso8601(text);
  static const TimeFormat format("%d.%m.%Y %I:%M:%S.%f %p %z %a %b");
  format.parse(text);
  parse_json(text);
  if (!is_valid_utf8(to_utf8(text, Encoding::windows_1252))) std::abort();
  if (is_readable(text) && !is_valid_utf8(text)) std::abort();
  return 0;
}
