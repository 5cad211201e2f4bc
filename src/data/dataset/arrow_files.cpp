#include "data/dataset/arrow_files.h"

#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <utility>

#include "base/hash.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kVocabularyBatch = int64_t{1} << 20;

std::shared_ptr<arrow::Array> int64_array(const std::vector<int64_t>& values) {
  return std::make_shared<arrow::Int64Array>(static_cast<int64_t>(values.size()),
                                             arrow::Buffer::Wrap(values));
}

// A new file that computes its hash while it is written.
class HashedFile final : public arrow::io::OutputStream {
 public:
  explicit HashedFile(std::shared_ptr<arrow::io::FileOutputStream> file) : file_(std::move(file)) {}

  arrow::Status Write(const void* data, int64_t size) override {
    hasher_.update({static_cast<const char*>(data), static_cast<size_t>(size)});
    return file_->Write(data, size);
  }
  arrow::Status Close() override { return file_->Close(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  bool closed() const override { return file_->closed(); }

  std::string hash() const { return hasher_.text(); }

 private:
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  Hasher hasher_;
};

// An open IPC file; it appears only when close() succeeds.
class ArrowWriter {
 public:
  ArrowWriter(const std::filesystem::path& file, const std::shared_ptr<arrow::Schema>& schema)
      : name_(file.string()) {
    out_ = std::make_shared<HashedFile>(
        arrow_value<IoError>(arrow::io::FileOutputStream::Open(name_), name_));
    writer_ = arrow_value<IoError>(arrow::ipc::MakeFileWriter(out_, schema), name_);
  }

  void write(const arrow::RecordBatch& batch) {
    arrow_check<IoError>(writer_->WriteRecordBatch(batch), name_);
  }

  // Returns the hash of the file.
  std::string close() {
    arrow_check<IoError>(writer_->Close(), name_);
    arrow_check<IoError>(out_->Close(), name_);
    return out_->hash();
  }

 private:
  std::string name_;
  std::shared_ptr<HashedFile> out_;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> writer_;
};

}  // namespace

void SequenceColumns::clear() {
  users.clear();
  for (auto& values : context) values.clear();
  offsets = {0};
  items.clear();
  actions.clear();
  timestamps.clear();
}

std::string write_sequences(const std::filesystem::path& file, const SequenceColumns& columns,
                            const std::vector<std::string>& context_names) {
  std::vector<std::shared_ptr<arrow::Field>> fields = {
      arrow::field("user", arrow::int64(), /*nullable=*/false)};
  std::vector<std::shared_ptr<arrow::Array>> arrays = {int64_array(columns.users)};
  for (size_t f = 0; f < context_names.size(); ++f) {
    fields.push_back(arrow::field(context_names[f], arrow::int64(), false));
    arrays.push_back(int64_array(columns.context[f]));
  }
  const auto rows = static_cast<int64_t>(columns.users.size());
  const auto list_type = arrow::list(arrow::field("item", arrow::int64(), false));
  const auto add_list = [&](const char* name, const std::vector<int64_t>& values) {
    if (values.empty()) return;
    fields.push_back(arrow::field(name, list_type, false));
    arrays.push_back(std::make_shared<arrow::ListArray>(
        list_type, rows, arrow::Buffer::Wrap(columns.offsets), int64_array(values)));
  };
  add_list("items", columns.items);
  add_list("actions", columns.actions);
  add_list("timestamps", columns.timestamps);
  const auto schema = arrow::schema(fields);
  ArrowWriter writer(file, schema);
  writer.write(*arrow::RecordBatch::Make(schema, rows, arrays));
  return writer.close();
}

std::string write_vocabulary(const std::filesystem::path& file, int64_t size,
                             const std::function<std::string(int64_t)>& id,
                             const std::function<std::string(int64_t)>& title) {
  std::vector<std::shared_ptr<arrow::Field>> fields = {arrow::field("id", arrow::utf8(), false)};
  if (title) fields.push_back(arrow::field("title", arrow::utf8(), false));
  const auto schema = arrow::schema(fields);
  ArrowWriter writer(file, schema);
  const auto column = [&](const std::function<std::string(int64_t)>& text, int64_t begin,
                          int64_t end) {
    arrow::StringBuilder builder;
    for (int64_t row = begin; row < end; ++row) {
      arrow_check<IoError>(builder.Append(text(row)), file.string());
    }
    return arrow_value<IoError>(builder.Finish(), file.string());
  };
  for (int64_t begin = 0; begin < size; begin += kVocabularyBatch) {
    const int64_t end = std::min(size, begin + kVocabularyBatch);
    arrow::ArrayVector arrays;
    arrays.push_back(column(id, begin, end));
    if (title) arrays.push_back(column(title, begin, end));
    writer.write(*arrow::RecordBatch::Make(schema, end - begin, arrays));
  }
  return writer.close();
}

std::vector<std::shared_ptr<arrow::RecordBatch>> map_arrow_file(
    const std::filesystem::path& file, std::shared_ptr<arrow::Buffer>* bytes) {
  const std::string name = file.string();
  const auto mapped = arrow_value<DataError>(
      arrow::io::MemoryMappedFile::Open(name, arrow::io::FileMode::READ), name);
  const auto reader = arrow_value<DataError>(arrow::ipc::RecordBatchFileReader::Open(mapped), name);
  if (bytes != nullptr) {
    const int64_t size = arrow_value<DataError>(mapped->GetSize(), name);
    *bytes = arrow_value<DataError>(mapped->ReadAt(0, size), name);
  }
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  for (int b = 0; b < reader->num_record_batches(); ++b) {
    batches.push_back(arrow_value<DataError>(reader->ReadRecordBatch(b), name));
    arrow_check<DataError>(batches.back()->ValidateFull(), name);
  }
  return batches;
}

}  // namespace seqfuse::data
