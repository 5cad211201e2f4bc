// Small tables next to the log, kept in memory: features of users, titles of items.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "data/ingest/formats.h"
#include "data/read/input.h"

namespace seqfuse::data {

// "FILE has no column 'x' (did you mean 'y'?); its columns: ..."
std::string no_column(const std::vector<std::string>& names, const std::string& wanted,
                      const std::string& file);

// The index of a named column. Throws DataError if it is missing (with the existing names and the
// nearest one) or if two columns have the name.
int column_index(const std::vector<std::string>& names, const std::string& wanted,
                 const std::string& file);

// Rows of the wanted columns by the id column: id -> one string per column. Malformed rows throw
// DataError with file and line. The first row of an id counts. The member's name decides the
// dialect. lists: whether wanted columns of a typed header may hold lists.
enum class ListColumns { refused, allowed };
using SideTable = std::unordered_map<std::string, std::vector<std::string>>;
SideTable read_side_table(std::string_view text, const TableFormat& format,
                          const InputMember& member, const std::string& id_column,
                          const std::vector<std::string>& columns,
                          ListColumns lists = ListColumns::refused);

}  // namespace seqfuse::data
