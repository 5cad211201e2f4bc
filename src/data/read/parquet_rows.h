// Rows of a Parquet file as text fields, so that they follow the same rules as those of delimited
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
  // Units a second of a column of timestamps.
  std::optional<int64_t> units_per_second(int column) const;

  // Only these columns are read; the other fields stay "". Timestamps of the column time (-1: none)
  // become units of another length, with decimals. Throws DataError for nested columns.
  void select(const std::vector<int>& columns, int time = -1, int64_t units_per_second = 1);

  bool next_batch();  // false at the end
  bool next();        // the next row of the batch; false at its end
  std::span<const std::string_view> fields() const { return fields_; }  // null is ""
  // Why the row is refused: a text that is not UTF-8. "" if it is not.
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
  int64_t units_per_second_ = 1;  // that times become
  std::vector<std::shared_ptr<arrow::StringArray>> arrays_;
  bool readable_ = true;  // the batch is UTF-8
  std::vector<std::string_view> fields_;
  int64_t row_ = 0, rows_ = 0;
};

}  // namespace seqfuse::data
