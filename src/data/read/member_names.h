// Information in the names of an input's files: which are hidden, their kind, and the columns in
// the names of their folders.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace seqfuse::data {

// A component that begins with '.' or '_': _SUCCESS, .part.csv.crc, .DS_Store, __MACOSX/log.csv.
// path: within the folder or archive.
bool is_hidden(std::string_view path);

enum class FileKind {
  text,  // delimited; also for unknown endings
  tabs,  // text, delimited by tabs
  parquet,
  json_lines,
  other_data,  // rows in an unsupported format
  document,    // no rows: README, notes.md, schema.json
};
FileKind kind_of(std::string_view name);  // name: without .gz, ...

// "dt=2024-01-01/country=DE/part-0.csv" -> {dt, 2024-01-01}, {country, DE}: %XX decoded,
// __HIVE_DEFAULT_PARTITION__ as "". Throws DataError for names that are not UTF-8.
std::vector<std::pair<std::string, std::string>> partitions_of(std::string_view path);

}  // namespace seqfuse::data
