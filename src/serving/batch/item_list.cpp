#include "serving/batch/item_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serving/batch/table_rows.h"

namespace seqfuse::serving {
namespace {

constexpr const char* kNames[] = {"item", "item_id"};

int item_column(const std::vector<std::string>& names, const std::string& file) {
  if (const std::string other = other_delimiter(names); !other.empty()) {
    throw_error<DataError>(
        "{}: its first line, '{}', seems to be separated by {}: use commas, or tabs in a file that "
        "ends in .tsv",
        file, names[0], other);
  }
  if (names.size() == 1) return 0;
  for (const char* name : kNames) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<int>(found - names.begin());
  }
  throw_error<DataError>("{} has no column 'item': it has {}", file, fmt::join(names, ", "));
}

std::string id_of_json(const std::string& line, const std::string& where) {
  const auto object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) {
    for (const char* name : kNames) {
      const auto found = object.find(name);
      if (found == object.end()) continue;
      if (found->is_string()) return found->get<std::string>();
      if (found->is_number_integer()) return found->dump();
    }
  }
  throw_error<DataError>("{}: expected an object with an id, such as {{\"item\": \"a\"}}", where);
}

}  // namespace

ItemList read_item_list(const std::string& file, const data::Vocabulary& vocabulary) {
  const TableFormat format = table_format(file, "");
  const auto rows = open_table_rows(file, format);
  const int column = item_column(rows->names(), file);
  rows->select({column});
  ItemList list;
  while (rows->next()) {
    auto id = rows->text(column);
    if (!id) throw_error<DataError>("{}: the item is blank", rows->where());
    if (format == TableFormat::jsonl) id = id_of_json(*id, rows->where());
    if (const auto item = vocabulary.find_item(*id)) {
      list.items.push_back(*item);
    } else if (list.unknown++ == 0) {
      list.first_unknown = *id;
    }
  }
  std::sort(list.items.begin(), list.items.end());
  list.items.erase(std::unique(list.items.begin(), list.items.end()), list.items.end());
  return list;
}

std::vector<int64_t> all_but(const data::Vocabulary& vocabulary,
                             const std::vector<int64_t>& items) {
  std::vector<int64_t> others;
  auto next = items.begin();
  for (int64_t item = 1; item <= vocabulary.num_items(); ++item) {
    if (next != items.end() && *next == item) {
      ++next;
    } else {
      others.push_back(item);
    }
  }
  return others;
}

}  // namespace seqfuse::serving
