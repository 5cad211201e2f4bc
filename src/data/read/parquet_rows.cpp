#include "data/read/parquet_rows.h"

#include <arrow/compute/cast.h>
#include <arrow/io/memory.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/dataset/arrow_files.h"

namespace seqfuse::data {

struct ParquetRows::Reader {
  std::unique_ptr<parquet::arrow::FileReader> file;
  std::unique_ptr<arrow::RecordBatchReader> batches;
};

ParquetRows::ParquetRows(std::string content, std::string name)
    : content_(std::move(content)), name_(std::move(name)), reader_(std::make_unique<Reader>()) {
  reader_->file = arrow_value<DataError>(
      parquet::arrow::OpenFile(
          std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(content_)),
          arrow::default_memory_pool()),
      name_);
  std::shared_ptr<arrow::Schema> schema;
  arrow_check<DataError>(reader_->file->GetSchema(&schema), name_);
  names_ = schema->field_names();
  fields_.resize(names_.size());
}

ParquetRows::~ParquetRows() = default;

void ParquetRows::select(const std::vector<int>& columns) {
  columns_ = columns;
  std::sort(columns_.begin(), columns_.end());
  columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
  std::vector<int> groups(static_cast<size_t>(reader_->file->num_row_groups()));
  for (size_t g = 0; g < groups.size(); ++g) groups[g] = static_cast<int>(g);
  reader_->batches =
      arrow_value<DataError>(reader_->file->GetRecordBatchReader(groups, columns_), name_);
}

bool ParquetRows::next_batch() {
  const auto batch = arrow_value<DataError>(reader_->batches->Next(), name_);
  if (!batch) return false;
  arrays_.clear();
  for (int c = 0; c < batch->num_columns(); ++c) {
    std::shared_ptr<arrow::Array> column = batch->column(c);
    // A point in time as its integer, in the unit it is stored in.
    if (column->type_id() == arrow::Type::TIMESTAMP) {
      column = arrow_value<DataError>(column->View(arrow::int64()), name_);
    }
    column = arrow_value<DataError>(arrow::compute::Cast(*column, arrow::utf8()), name_);
    arrays_.push_back(std::static_pointer_cast<arrow::StringArray>(column));
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

std::string ParquetRows::hash() const {
  return hash_text(content_);
}

}  // namespace seqfuse::data
