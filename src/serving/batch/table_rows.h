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

// Lines end in .txt or in nothing, the others in what they are called. jsonl: an object a line.
enum class TableFormat { lines, csv, tsv, jsonl, parquet };

// By the name's ending unless `given` names one ("" does not). Throws UsageError.
TableFormat table_format(const std::string& file, const std::string& given);

class TableRows {
 public:
  virtual ~TableRows() = default;

  // Of the columns. Those of lines and jsonl have one, the whole line, without a name.
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

// file: "-" is standard input. interrupted: FileStream. Throws UsageError, DataError or IoError.
std::unique_ptr<TableRows> open_table_rows(const std::string& file, TableFormat format,
                                           std::function<void()> interrupted = {});

}  // namespace seqfuse::serving
