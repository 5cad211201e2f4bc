#include "data/ingest/side_tables.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/names.h"

namespace seqfuse::data {

std::vector<std::string> take_header(std::string_view& text, const TableFormat& format) {
  if (!format.columns.empty()) return format.columns;
  RowSplitter rows(text.substr(0, text.find('\n')), format.dialect);
  std::vector<std::string> names;
  if (rows.next()) {
    for (const std::string_view field : rows.fields()) names.emplace_back(trim(field));
  }
  text.remove_prefix(std::min(
      text.size(), text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1));
  return names;
}

int column_index(const std::vector<std::string>& names, const std::string& wanted,
                 const std::string& file) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) {
    throw_error<DataError>("{} has no column '{}'{}; its columns: {}", file, wanted,
                           did_you_mean(wanted, names), fmt::join(names, ", "));
  }
  return static_cast<int>(found - names.begin());
}

SideTable read_side_table(std::string_view text, const TableFormat& format, const std::string& file,
                          const std::string& id_column, const std::vector<std::string>& columns) {
  const std::string converted = format.latin1 ? latin1_to_utf8(text) : std::string();
  std::string_view rest = without_bom(format.latin1 ? std::string_view(converted) : text, file);
  const std::vector<std::string> names = take_header(rest, format);
  const auto id = static_cast<size_t>(column_index(names, id_column, file));
  std::vector<size_t> wanted;
  for (const std::string& column : columns) {
    wanted.push_back(static_cast<size_t>(column_index(names, column, file)));
  }
  const int64_t first_line = format.columns.empty() ? 2 : 1;
  SideTable table;
  RowSplitter rows(rest, format.dialect);
  while (rows.next()) {
    const auto& fields = rows.fields();
    if (rows.malformed() != nullptr || fields.size() != names.size()) {
      throw_error<DataError>(
          "{}:{}: {}\n  correct the row", file, first_line + rows.lines_before(),
          rows.malformed() != nullptr
              ? std::string(rows.malformed())
              : fmt::format("expected {} columns, found {}", names.size(), fields.size()));
    }
    const auto [entry, added] = table.try_emplace(std::string(trim(fields[id])));
    if (!added) continue;
    for (const size_t column : wanted) entry->second.emplace_back(trim(fields[column]));
  }
  return table;
}

}  // namespace seqfuse::data
