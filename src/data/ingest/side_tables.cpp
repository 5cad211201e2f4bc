#include "data/ingest/side_tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/names.h"
#include "data/read/field_values.h"
#include "data/read/text_chunks.h"
#include "data/read/typed_header.h"

namespace seqfuse::data {

std::string no_column(const std::vector<std::string>& names, const std::string& wanted,
                      const std::string& file) {
  return fmt::format("{} has no column '{}'{}; its columns: {}", file, wanted,
                     did_you_mean(wanted, names), fmt::join(names, ", "));
}

int column_index(const std::vector<std::string>& names, const std::string& wanted,
                 const std::string& file) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) {
    throw DataError(no_column(names, wanted, file));
  }
  if (std::find(found + 1, names.end(), wanted) != names.end()) {
    throw_error<DataError>("{} has two columns '{}': rename one of them", file, wanted);
  }
  return static_cast<int>(found - names.begin());
}

SideTable read_side_table(std::string_view text, const TableFormat& format,
                          const InputMember& member, const std::string& id_column,
                          const std::vector<std::string>& columns, ListColumns lists) {
  const std::string& file = member.location;
  const std::string_view marked = without_bom(text, file);
  const bool has_mark = marked.size() < text.size();
  const std::string utf8 = to_utf8(marked, has_mark ? Encoding::utf8 : format.encoding);
  RowSplitter rows(utf8, format.dialect_of(member.name));
  std::vector<std::string> names = format.columns;
  if (names.empty() && rows.next()) names = header_names(rows, file);
  std::optional<TypedHeader> typed;
  if (format.typed_header) {
    typed.emplace(names, file);
    names = typed->names;
    typed->check_id(column_index(names, id_column, file));
  }
  const auto id = static_cast<size_t>(column_index(names, id_column, file));
  std::vector<size_t> wanted;
  for (const std::string& column : columns) {
    const int index = column_index(names, column, file);
    if (typed && lists == ListColumns::refused) typed->check_single_value(index);
    wanted.push_back(static_cast<size_t>(index));
  }
  const bool readable = is_readable(utf8);
  SideTable table;
  while (rows.next()) {
    const auto& fields = rows.fields();
    std::string problem;
    if (rows.malformed() != nullptr) {
      problem = rows.malformed();
    } else if (fields.size() != names.size()) {
      problem = fmt::format("expected {} columns, found {}", names.size(), fields.size());
    } else if (!readable) {
      problem = unreadable(rows.row());
    }
    if (!problem.empty()) {
      throw_error<DataError>("{}:{}: {}\n  correct the row", file, rows.lines_before() + 1,
                             problem);
    }
    const auto [entry, added] = table.try_emplace(std::string(trim(fields[id])));
    if (!added) continue;
    for (const size_t column : wanted) entry->second.emplace_back(trim(fields[column]));
  }
  return table;
}

}  // namespace seqfuse::data
