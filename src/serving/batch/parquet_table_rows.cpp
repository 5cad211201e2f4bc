#include "serving/batch/parquet_table_rows.h"

#include <arrow/api.h>
#include <arrow/compute/cast.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/dataset/arrow_files.h"
#include "data/read/field_values.h"
#include "data/read/parquet_columns.h"

namespace seqfuse::serving {
namespace {

using data::arrow_check;
using data::arrow_value;

constexpr int64_t kRowsAtOnce = 1024;  // each may be a long history

// Points in time become dates, which say their unit.
std::shared_ptr<arrow::StringArray> strings_of(std::shared_ptr<arrow::Array> array,
                                               const std::string& what) {
  array = data::plain_values(std::move(array), what);
  if (array->type_id() == arrow::Type::TIMESTAMP) {
    const auto unit = static_cast<const arrow::TimestampType&>(*array->type()).unit();
    array = arrow_value<DataError>(array->View(arrow::timestamp(unit)), what);  // in UTC
    array = arrow_value<DataError>(arrow::compute::Cast(*array, arrow::utf8()), what);
  }
  return data::as_strings(std::move(array), what);
}

// A column of a batch: a text in each row, or those of [offsets[row], offsets[row + 1]).
struct Column {
  std::shared_ptr<arrow::Array> rows;  // as they stand in the file: which are null
  std::shared_ptr<arrow::StringArray> texts;
  std::vector<int64_t> offsets;  // empty: no lists

  Column(const std::shared_ptr<arrow::Array>& array, const std::string& what)
      : rows(data::plain_values(array, what)) {
    switch (rows->type_id()) {
      case arrow::Type::LIST:
        read_lists(static_cast<const arrow::ListArray&>(*rows), what);
        break;
      case arrow::Type::LARGE_LIST:
        read_lists(static_cast<const arrow::LargeListArray&>(*rows), what);
        break;
      default:
        if (arrow::is_nested(rows->type_id())) {
          throw_error<DataError>("{} is {}: expected a value or a list in each row", what,
                                 rows->type()->ToString());
        }
        texts = strings_of(rows, what);
    }
  }

  template <class Lists>
  void read_lists(const Lists& lists, const std::string& what) {
    texts = strings_of(lists.values(), what);
    for (int64_t row = 0; row <= lists.length(); ++row) offsets.push_back(lists.value_offset(row));
  }

  bool is_null(int64_t row) const { return rows->IsNull(row); }
};

class ParquetTableRows final : public TableRows {
 public:
  explicit ParquetTableRows(const std::string& file) : name_(file) {
    parquet::arrow::FileReaderBuilder builder;
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRowsAtOnce);
    properties.set_pre_buffer(false);  // which would hold the whole file
    arrow_check<DataError>(
        builder.Open(arrow_value<DataError>(arrow::io::ReadableFile::Open(file), file)), file);
    reader_ = arrow_value<DataError>(builder.properties(properties)->Build(), file);
    std::shared_ptr<arrow::Schema> schema;
    arrow_check<DataError>(reader_->GetSchema(&schema), file);
    names_ = schema->field_names();
    total_ = reader_->parquet_reader()->metadata()->num_rows();
    std::vector<int> all(names_.size());
    std::iota(all.begin(), all.end(), 0);
    columns_ = all;
  }

  const std::vector<std::string>& names() const override { return names_; }

  void select(const std::vector<int>& columns) override {
    columns_ = columns;
    std::sort(columns_.begin(), columns_.end());
  }

  bool next() override {
    if (!batches_) {
      std::vector<int> groups(static_cast<size_t>(reader_->num_row_groups()));
      std::iota(groups.begin(), groups.end(), 0);
      batches_ = arrow_value<DataError>(
          reader_->GetRecordBatchReader(groups, data::leaf_columns(*reader_, columns_)), name_);
    }
    ++row_;
    while (row_ >= rows_) {
      const auto batch = arrow_value<DataError>(batches_->Next(), name_);
      if (!batch) return false;
      first_ += rows_;
      rows_ = batch->num_rows();
      row_ = 0;
      fields_.clear();
      for (int c = 0; c < batch->num_columns(); ++c) {
        fields_.emplace_back(batch->column(c),
                             fmt::format("{}: column {}", name_, batch->column_name(c)));
      }
    }
    return true;
  }

  std::optional<std::string> text(int column) const override {
    const Column& field = field_of(column);
    if (field.is_null(row_)) return std::nullopt;
    if (!field.offsets.empty()) {
      throw_error<DataError>("{}: column {} holds lists: expected one value in each row", name_,
                             names_[static_cast<size_t>(column)]);
    }
    const std::string_view text = data::trim(field.texts->GetView(row_));
    if (text.empty()) return std::nullopt;
    return std::string(text);
  }

  std::optional<Texts> list(int column) const override {
    const Column& field = field_of(column);
    if (field.is_null(row_)) return std::nullopt;
    if (field.offsets.empty()) {
      const auto joined = text(column);
      if (!joined) return std::nullopt;
      return split_list(*joined);
    }
    Texts texts;
    for (int64_t i = field.offsets[static_cast<size_t>(row_)];
         i < field.offsets[static_cast<size_t>(row_) + 1]; ++i) {
      texts.emplace_back(field.texts->IsNull(i) ? std::string_view()
                                                : data::trim(field.texts->GetView(i)));
    }
    return texts;
  }

  std::string where() const override { return fmt::format("{}, row {}", name_, first_ + row_ + 1); }

  std::optional<double> done() const override {
    if (total_ == 0) return std::nullopt;
    return static_cast<double>(first_ + row_ + 1) / static_cast<double>(total_);
  }

 private:
  const Column& field_of(int column) const {
    const auto place = std::lower_bound(columns_.begin(), columns_.end(), column);
    return fields_[static_cast<size_t>(place - columns_.begin())];
  }

  std::string name_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::vector<std::string> names_;
  std::vector<int> columns_;    // that are read, ascending
  std::vector<Column> fields_;  // of the batch, one for each
  int64_t total_ = 0;
  int64_t first_ = 0, rows_ = 0, row_ = -1;  // of the batch; row_: in it
};

}  // namespace

std::unique_ptr<TableRows> open_parquet_table_rows(const std::string& file) {
  return std::make_unique<ParquetTableRows>(file);
}

}  // namespace seqfuse::serving
