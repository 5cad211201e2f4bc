#include "data/export/vector_file.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>

#include <bit>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/read/arrow_result.h"

namespace seqfuse::data {
namespace fs = std::filesystem;
using nlohmann::ordered_json;
namespace {

static_assert(std::endian::native == std::endian::little, "both formats use little-endian floats");

constexpr int64_t kRowGroup = 1 << 14;  // rows that the Parquet writer keeps in memory

ordered_json description_json(const VectorFileInfo& info) {
  ordered_json json = {{"vectors", info.vectors},
                       {"count", info.count},
                       {"width", info.width},
                       {"normalized", info.normalized ? ordered_json("l2") : ordered_json()}};
  if (!info.pooling.empty()) {
    json.update({{"pooling", info.pooling}, {"model", info.run}});
  } else {
    json.update({{"metric", "inner product"},
                 {"run", info.run},
                 {"step", info.step},
                 {"dataset_hash", info.dataset_hash}});
  }
  return json;
}

// Names of folders need not be UTF-8.
std::string text_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

class VectorWriter {
 public:
  virtual ~VectorWriter() = default;
  virtual void add(const VectorBlock& block) = 0;
  virtual void close() = 0;
};

class ParquetWriter final : public VectorWriter {
 public:
  ParquetWriter(const fs::path& file, const VectorFileInfo& info)
      : name_(file.string()), width_(info.width) {
    arrow::FieldVector fields = {arrow::field("id", arrow::utf8(), /*nullable=*/false)};
    if (info.titles) fields.push_back(arrow::field("title", arrow::utf8(), false));
    const auto vector = arrow::fixed_size_list(arrow::field("item", arrow::float32(), false),
                                               static_cast<int32_t>(width_));
    fields.push_back(arrow::field("vector", vector, false));
    schema_ = arrow::schema(
        fields, arrow::key_value_metadata({"seqfuse"}, {text_of(description_json(info))}));
    out_ = arrow_value<IoError>(arrow::io::FileOutputStream::Open(name_), name_);
    // Neither ids nor floats repeat. The Arrow schema says that lists have one length.
    const auto layout = parquet::WriterProperties::Builder()
                            .disable_dictionary()
                            ->max_row_group_length(kRowGroup)
                            ->build();
    const auto types = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    writer_ = arrow_value<IoError>(parquet::arrow::FileWriter::Open(
                                       *schema_, arrow::default_memory_pool(), out_, layout, types),
                                   name_);
  }

  void add(const VectorBlock& block) override {
    const auto rows = std::ssize(block.ids);
    arrow::ArrayVector columns = {text_column(block.ids)};
    if (schema_->num_fields() > 2) columns.push_back(text_column(block.titles));
    const auto values = std::make_shared<arrow::FloatArray>(
        std::ssize(block.values),
        std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t*>(block.values.data()),
                                        static_cast<int64_t>(block.values.size_bytes())));
    columns.push_back(std::make_shared<arrow::FixedSizeListArray>(
        schema_->field(schema_->num_fields() - 1)->type(), rows, values));
    arrow_check<IoError>(
        writer_->WriteRecordBatch(*arrow::RecordBatch::Make(schema_, rows, columns)), name_);
  }

  void close() override {
    arrow_check<IoError>(writer_->Close(), name_);
    arrow_check<IoError>(out_->Close(), name_);
  }

 private:
  std::shared_ptr<arrow::Array> text_column(std::span<const std::string> texts) const {
    arrow::StringBuilder builder;
    for (const std::string& text : texts) arrow_check<IoError>(builder.Append(text), name_);
    return arrow_value<IoError>(builder.Finish(), name_);
  }

  std::string name_;
  int64_t width_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> out_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

// Version 1.0: a magic number, the length of the header and the header, padded to 64 bytes.
std::string npy_header(int64_t rows, int64_t width) {
  constexpr size_t kAlignment = 64, kPrefix = 10;
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, width);
  header.append(kAlignment - 1 - (kPrefix + header.size()) % kAlignment, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  const char prefix[] = {'\x93',
                         'N',
                         'U',
                         'M',
                         'P',
                         'Y',
                         1,
                         0,
                         static_cast<char>(size & 0xff),
                         static_cast<char>(size >> 8)};
  return std::string(prefix, kPrefix) + header;
}

class NpyWriter final : public VectorWriter {
 public:
  NpyWriter(const fs::path& file, const fs::path& ids_file, const VectorFileInfo& info)
      : name_(file.string()),
        ids_file_(ids_file),
        out_(file, std::ios::binary),
        description_(description_json(info)) {
    write(npy_header(info.count, info.width));
  }

  void add(const VectorBlock& block) override {
    ids_.insert(ids_.end(), block.ids.begin(), block.ids.end());
    write({reinterpret_cast<const char*>(block.values.data()), block.values.size_bytes()});
  }

  void close() override {
    out_.close();
    if (!out_) throw_errno(fmt::format("cannot write {}", name_));
    description_["ids"] = std::move(ids_);
    write_file_atomically(ids_file_, text_of(description_) + "\n");
  }

 private:
  void write(std::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out_) throw_errno(fmt::format("cannot write {}", name_));
  }

  std::string name_;
  fs::path ids_file_;
  std::ofstream out_;
  ordered_json description_;
  std::vector<std::string> ids_;
};

void refuse_folder(const fs::path& file) {
  std::error_code ignored;
  SEQFUSE_CHECK_AS(IoError, !fs::is_directory(file, ignored),
                   "{} is a folder; expected the name of a file", file.string());
}

}  // namespace

VectorFormat vector_format(const fs::path& file) {
  const fs::path ending = file.extension();
  if (ending == ".parquet") return VectorFormat::parquet;
  if (ending == ".npy") return VectorFormat::npy;
  throw_error<UsageError>("the output is '{}': its name must end in .parquet or .npy",
                          file.string());
}

fs::path ids_path(const fs::path& npy_file) {
  return npy_file.string() + ".json";
}

void write_vectors(const fs::path& file, const VectorFileInfo& info,
                   const std::function<void(const AddVectors&)>& produce) {
  const auto write = [&](VectorWriter& writer) {
    int64_t added = 0;
    produce([&](const VectorBlock& block) {
      SEQFUSE_CHECK(block.values.size() == block.ids.size() * static_cast<size_t>(info.width),
                    "{} values of {} vectors of width {}", block.values.size(), block.ids.size(),
                    info.width);
      writer.add(block);
      added += std::ssize(block.ids);
    });
    SEQFUSE_CHECK(added == info.count, "{} vectors written, {} announced", added, info.count);
    writer.close();
  };
  const bool is_npy = vector_format(file) == VectorFormat::npy;
  refuse_folder(file);
  if (!is_npy) {
    write_file_atomically(file, [&](const fs::path& temporary) {
      ParquetWriter writer(temporary, info);
      write(writer);
    });
    return;
  }
  refuse_folder(ids_path(file));
  // Both files are whole and on the disk before the first gets its name.
  write_file_atomically(ids_path(file), [&](const fs::path& temporary_ids) {
    write_file_atomically(file, [&](const fs::path& temporary) {
      NpyWriter writer(temporary, temporary_ids, info);
      write(writer);
    });
  });
}

}  // namespace seqfuse::data
