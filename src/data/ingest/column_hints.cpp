#include "data/ingest/column_hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace seqfuse::data {
namespace {

// The delimiter that a header of one column seems to have, as --delimiter takes it; "" if none.
std::string likely_delimiter(const std::string& header) {
  for (const char c : {'\t', ';', '|', ','}) {
    if (header.find(c) != std::string::npos) return c == '\t' ? "\\t" : std::string(1, c);
  }
  return "";
}

bool is_numbers(std::string_view line) {
  return line.find(' ') != std::string_view::npos &&
         line.find_first_not_of("0123456789 ") == std::string_view::npos;
}

}  // namespace

std::string missing_column_hint(const DatasetFormat& format, const IngestOptions& options,
                                const std::string& wanted, const std::vector<std::string>& names,
                                const InputMember& member) {
  if (!format.from_flags) return "";
  const auto is_typed = [](const std::string& name) {
    return name.find(":token") != std::string::npos;
  };
  if (!format.table.typed_header && std::ranges::any_of(names, is_typed)) {
    return "\n  names with types are those of --format recbole";
  }
  if (names.size() == 1 && is_numbers(names[0])) {
    return "\n  lines \"user item item ...\" are --format sasrec";
  }
  const std::string delimiter = names.size() == 1 ? likely_delimiter(names[0]) : "";
  if (!delimiter.empty()) {
    return fmt::format("\n  is the file separated by '{0}'? give --delimiter '{0}'", delimiter);
  }
  const char* flag = wanted == format.user_column   ? "--user-column"
                     : wanted == format.item_column ? "--item-column"
                                                    : nullptr;
  std::string hint = flag == nullptr ? "" : fmt::format("\n  {} gives its name", flag);
  if (format.log.empty() && member.location != options.input.string()) {
    hint += fmt::format("\n  all files of {} are read as logs{}: move others out of it",
                        options.input.string(),
                        format.titles ? " but " + format.titles->file.text() : "");
  }
  return hint;
}

}  // namespace seqfuse::data
