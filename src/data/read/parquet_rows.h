// Rows of a Parquet file as text fields.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/read/typed_rows.h"

namespace seqfuse::data {

class ParquetRows final : public TypedRows {
 public:
  // content: the whole file. Throws DataError naming it.
  ParquetRows(std::string content, std::string name);
  ~ParquetRows() override;

  const std::vector<std::string>& names() const override { return names_; }
  std::optional<int64_t> units_per_second(int column) const override;
  void select(const std::vector<int>& columns, int time = -1,
              int64_t units_per_second = 1) override;
  bool next_batch() override;
  bool next() override;
  std::span<const std::string_view> fields() const override { return fields_; }
  std::string problem() const override;
  int64_t bytes() const override { return static_cast<int64_t>(content_.size()); }
  std::string hash() const override;

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
