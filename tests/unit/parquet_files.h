// Writes Parquet files for tests.
#pragma once

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/dataset/dataset.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data {

using Lists = std::vector<std::vector<int64_t>>;

template <class Builder, class Value>
std::shared_ptr<arrow::Array> array(const std::vector<Value>& values,
                                    Builder&& builder = Builder()) {
  for (const Value& value : values) EXPECT_TRUE(builder.Append(value).ok());
  return *builder.Finish();
}

inline std::shared_ptr<arrow::Array> lists(const Lists& rows) {
  const auto values = std::make_shared<arrow::Int64Builder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const auto& row : rows) {
    EXPECT_TRUE(builder.Append().ok());
    for (const int64_t value : row) EXPECT_TRUE(values->Append(value).ok());
  }
  return *builder.Finish();
}

// A struct of two columns.
inline std::shared_ptr<arrow::Array> struct_of(const std::shared_ptr<arrow::Array>& a,
                                               const std::shared_ptr<arrow::Array>& b) {
  return *arrow::StructArray::Make({a, b}, std::vector<std::string>{"a", "b"});
}

class ParquetTest : public testing::Test {
 protected:
  using Columns = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;

  void write(const std::string& name, const Columns& columns) const {
    const std::filesystem::path file = directory_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    arrow::FieldVector fields;
    arrow::ArrayVector arrays;
    for (const auto& [column, values] : columns) {
      fields.push_back(arrow::field(column, values->type()));
      arrays.push_back(values);
    }
    const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
    const auto out = *arrow::io::FileOutputStream::Open(file.string());
    // With the Arrow schema embedded, as pyarrow and polars write it.
    const auto types = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, 2,
                                           parquet::default_writer_properties(), types)
                    .ok());
    ASSERT_TRUE(out->Close().ok());
  }

  std::string open_error() const {
    try {
      Dataset::open(directory_.path());
      ADD_FAILURE() << "was opened";
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryDirectory directory_;
};

}  // namespace seqfuse::data
