// Any text is split into rows and mapped to events without a crash; text without quotes gives the
// same rows when it is first cut into chunks of whole rows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "data/read/csv.h"
#include "data/ingest/event_rows.h"

namespace {

using namespace seqfuse::data;

void split(std::string_view text, const CsvDialect& dialect,
           std::vector<std::vector<std::string>>& out) {
  RowSplitter rows(text, dialect);
  while (rows.next()) out.emplace_back(rows.fields().begin(), rows.fields().end());
}

void map_rows(std::string_view text) {
  static EventColumns columns;
  columns.names = {"user", "item", "time", "action"};
  columns.user = 0;
  columns.item = 1;
  columns.time = 2;
  columns.actions = {3};
  columns.action_rule = ActionRule::half_stars;
  static IdTables tables;  // kept: making them takes longer than a run
  static RowMapper mapper(columns, tables);
  ParsedRows parsed;
  RowSplitter rows(text, {});
  while (rows.next()) {
    mapper.add(rows.fields(), rows.lines_before(), parsed);
    mapper.add_sequence(rows.fields(), rows.lines_before(), parsed);
    mapper.finish(parsed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const CsvDialect& dialect :
       {CsvDialect{}, CsvDialect{"::", false}, CsvDialect{"\t", true}}) {
    std::vector<std::vector<std::string>> whole, pieces;
    const size_t cut = whole_rows(text, dialect.quotes);
    if (cut > size) std::abort();
    split(text, dialect, whole);
    if (dialect.quotes && text.find('"') != std::string_view::npos) continue;
    split(text.substr(0, cut), dialect, pieces);
    split(text.substr(cut), dialect, pieces);
    if (whole != pieces) std::abort();
  }
  map_rows(text);
  parse_time(text);
  latin1_to_utf8(text);
  return 0;
}
