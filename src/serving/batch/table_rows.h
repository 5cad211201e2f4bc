// Rows of a text or Parquet file, one after the other, in bounded memory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/request.h"

namespace seqfuse::serving {

// lines: a text on each line. jsonl: a JSON object on each line.
enum class TableFormat { lines, csv, tsv, jsonl, parquet };

// The format named by `given` or, if that is "", by the ending of the file's name; .txt and no ending
// mean lines. Throws UsageError.
TableFormat table_format(const std::string& file, const std::string& given);

class TableRows {
 public:
  virtual ~TableRows() = default;

  // Names of the columns. For lines and jsonl one without a name: the whole line.
  virtual const std::vector<std::string>& names() const = 0;
  // Reads only these columns, each once.
  virtual void select(const std::vector<int>& /*columns*/) {}

  // The next row that is not blank; false at the end. Throws DataError naming the row.
  virtual bool next() = 0;
  // A field of the row, without spaces at its ends; nothing where it is blank or null. list: also of
  // "a,b,c". Throws DataError where a column of lists is read as text.
  virtual std::optional<std::string> text(int column) const = 0;
  virtual std::optional<Texts> list(int column) const = 0;

  virtual std::string where() const = 0;           // "users.csv:5"
  virtual std::optional<double> done() const = 0;  // share of the file, 0 to 1, where it is known
};

// names: of a table's columns. If there is only one, and it looks like several with another delimiter
// between them, returns that delimiter for messages, such as "semicolons, ';'"; otherwise "".
std::string other_delimiter(const std::vector<std::string>& names);

// file: "-" is standard input. delimiter: of csv; "": a comma. interrupted: as for FileStream. Throws
// UsageError, DataError or IoError.
std::unique_ptr<TableRows> open_table_rows(const std::string& file, TableFormat format,
                                           const std::string& delimiter = "",
                                           std::function<void()> interrupted = {});

}  // namespace seqfuse::serving
