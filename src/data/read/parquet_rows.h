// Rows of a Parquet file as text fields, so that the same rules apply to them as to delimited
// text.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

class ParquetRows {
 public:
  // content: the whole file. Throws DataError naming it.
  ParquetRows(std::string content, std::string name);
  ~ParquetRows();

  const std::vector<std::string>& names() const { return names_; }
  // Units per second of a timestamp column.
  std::optional<int64_t> units_per_second(int column) const;

  // Reads only these columns; the other fields stay "". Timestamps of the column `time` (-1: none)
  // are converted to this unit, with decimals. Throws DataError for nested columns.
  void select(const std::vector<int>& columns, int time = -1, int64_t units_per_second = 1);

  bool next_batch();  // false at the end
  bool next();        // the next row of the batch; false at its end
  std::span<const std::string_view> fields() const { return fields_; }  // null is ""
  // Why the row is malformed (text that is not UTF-8), or "".
  std::string problem() const;

  int64_t bytes() const { return static_cast<int64_t>(content_.size()); }
  std::string hash() const;

 private:
  struct Reader;
  std::string content_, name_;
  std::vector<std::string> names_;
  std::unique_ptr<Reader> reader_;
  std::vector<int> columns_;
  int time_ = -1;
  int64_t units_per_second_ = 1;  // unit that times are converted to
  std::vector<std::shared_ptr<arrow::StringArray>> arrays_;
  bool readable_ = true;  // the batch is UTF-8
  std::vector<std::string_view> fields_;
  int64_t row_ = 0, rows_ = 0;
};

}  // namespace seqfuse::data
