#include "data/read/parquet_rows.h"

#include <arrow/io/memory.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/read/arrow_result.h"
#include "data/read/parquet_columns.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

int64_t units_of(const arrow::TimestampType& type) {
  switch (type.unit()) {
    case arrow::TimeUnit::SECOND:
      return 1;
    case arrow::TimeUnit::MILLI:
      return 1'000;
    case arrow::TimeUnit::MICRO:
      return 1'000'000;
    case arrow::TimeUnit::NANO:
      return 1'000'000'000;
  }
  return 1;
}

// Converts timestamps of `from` units per second to decimal numbers of `to` units per second.
std::shared_ptr<arrow::Array> rescaled(const arrow::Array& timestamps, int64_t from, int64_t to,
                                       const std::string& what) {
  const auto integers = arrow_value<DataError>(timestamps.View(arrow::int64()), what);
  const auto& values = static_cast<const arrow::Int64Array&>(*integers);
  arrow::StringBuilder builder;
  for (int64_t row = 0; row < values.length(); ++row) {
    if (values.IsNull(row)) {
      arrow_check<DataError>(builder.AppendNull(), what);
      continue;
    }
    const __int128 scaled = static_cast<__int128>(values.Value(row)) * to;
    const bool negative = scaled < 0;
    const __int128 size = negative ? -scaled : scaled;
    // In units of 1e-9: exact, because `from` divides 1e9.
    const std::string text =
        fmt::format("{}{}.{:09}", negative ? "-" : "", size / from,
                    static_cast<int64_t>(size % from) * (1'000'000'000 / from));
    arrow_check<DataError>(builder.Append(text), what);
  }
  return arrow_value<DataError>(builder.Finish(), what);
}

}  // namespace

struct ParquetRows::Reader {
  std::unique_ptr<parquet::arrow::FileReader> file;
  std::unique_ptr<arrow::RecordBatchReader> batches;
  std::shared_ptr<arrow::Schema> schema;
};

ParquetRows::ParquetRows(std::string content, std::string name)
    : content_(std::move(content)), name_(std::move(name)), reader_(std::make_unique<Reader>()) {
  reader_->file = arrow_value<DataError>(
      parquet::arrow::OpenFile(
          std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(content_)),
          arrow::default_memory_pool()),
      name_);
  arrow_check<DataError>(reader_->file->GetSchema(&reader_->schema), name_);
  names_ = reader_->schema->field_names();
  fields_.resize(names_.size());
}

ParquetRows::~ParquetRows() = default;

std::optional<int64_t> ParquetRows::units_per_second(int column) const {
  const arrow::DataType& type = *reader_->schema->field(column)->type();
  if (type.id() != arrow::Type::TIMESTAMP) return std::nullopt;
  return units_of(static_cast<const arrow::TimestampType&>(type));
}

void ParquetRows::select(const std::vector<int>& columns, int time, int64_t units_per_second) {
  columns_ = columns;
  std::sort(columns_.begin(), columns_.end());
  columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
  for (const int column : columns_) check_single_value(*reader_->schema->field(column), name_);
  time_ = time;
  units_per_second_ = units_per_second;
  std::vector<int> groups(static_cast<size_t>(reader_->file->num_row_groups()));
  for (size_t g = 0; g < groups.size(); ++g) groups[g] = static_cast<int>(g);
  reader_->batches = arrow_value<DataError>(
      reader_->file->GetRecordBatchReader(groups, leaf_columns(*reader_->file, columns_)), name_);
}

bool ParquetRows::next_batch() {
  const auto batch = arrow_value<DataError>(reader_->batches->Next(), name_);
  if (!batch) return false;
  arrays_.clear();
  readable_ = true;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const std::string what =
        fmt::format("{}: column {}", name_, names_[static_cast<size_t>(columns_[c])]);
    std::shared_ptr<arrow::Array> column = batch->column(static_cast<int>(c));
    const auto units = columns_[c] == time_ ? this->units_per_second(time_) : std::nullopt;
    if (units && *units != units_per_second_) {
      column = rescaled(*column, *units, units_per_second_, what);
    }
    arrays_.push_back(as_strings(column, what));
    readable_ &= arrays_.back()->ValidateUTF8().ok();
  }
  row_ = 0;
  rows_ = batch->num_rows();
  return true;
}

bool ParquetRows::next() {
  if (row_ == rows_) return false;
  for (size_t c = 0; c < arrays_.size(); ++c) {
    fields_[static_cast<size_t>(columns_[c])] =
        arrays_[c]->IsNull(row_) ? std::string_view() : arrays_[c]->GetView(row_);
  }
  ++row_;
  return true;
}

std::string ParquetRows::problem() const {
  if (readable_) return "";
  for (const int column : columns_) {
    const std::string_view field = fields_[static_cast<size_t>(column)];
    if (is_valid_utf8(field)) continue;
    return fmt::format("column {} is '{}', which is not UTF-8", names_[static_cast<size_t>(column)],
                       excerpt(field));
  }
  return "";
}

std::string ParquetRows::hash() const {
  return hash_text(content_);
}

}  // namespace seqfuse::data
