// What the names of an input's files say: which are hidden, what kind they are, and the columns
// that the names of their folders hold.
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
  text,  // delimited, also for endings that are not known
  tabs,  // text, delimited by tabs
  parquet,
  other_data,  // holds rows, but in a format that is not read
  document,    // holds no rows: README, notes.md, schema.json
};
FileKind kind_of(std::string_view name);  // which has no .gz, ... any more

// "dt=2024-01-01/country=DE/part-0.csv" -> {dt, 2024-01-01}, {country, DE}: %XX decoded,
// __HIVE_DEFAULT_PARTITION__ as "". Throws DataError for names that are not UTF-8.
std::vector<std::pair<std::string, std::string>> partitions_of(std::string_view path);

}  // namespace seqfuse::data
