#include "serving/batch/parquet_writer.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/dataset/arrow_files.h"
#include "data/read/text_encoding.h"

namespace seqfuse::serving {
namespace {

using data::arrow_check;
using data::arrow_value;

constexpr int64_t kRowGroup = int64_t{1} << 18;  // rows that are held before they are written

class ParquetWriter final : public RecommendationWriter {
 public:
  ParquetWriter(const std::filesystem::path& file, const OutputTable& table)
      : name_(file.string()), vocabulary_(table.vocabulary), scores_(table.score_names.size()) {
    arrow::FieldVector fields = {arrow::field("user", arrow::utf8(), /*nullable=*/false),
                                 arrow::field("rank", arrow::int32(), false),
                                 arrow::field("item", arrow::utf8(), false)};
    for (const std::string& name : table.score_names) {
      fields.push_back(arrow::field(name, arrow::float64()));
    }
    fields.push_back(arrow::field("title", arrow::utf8()));
    std::vector<std::string> keys, values;
    for (const auto& [key, value] : table.about) {
      keys.push_back(key);
      values.push_back(value);
    }
    schema_ = arrow::schema(fields, arrow::key_value_metadata(keys, values));
    parquet::WriterProperties::Builder properties;
    // Nearly all scores differ, so that a dictionary of them would cost time and save nothing.
    for (const std::string& name : table.score_names) properties.disable_dictionary(name);
    if (arrow::util::Codec::IsAvailable(arrow::Compression::SNAPPY)) {
      properties.compression(arrow::Compression::SNAPPY);
    }
    out_ = arrow_value<IoError>(arrow::io::FileOutputStream::Open(name_), name_);
    const auto keep_metadata = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    writer_ = arrow_value<IoError>(
        parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(), out_,
                                         properties.build(), keep_metadata),
        name_);
  }

  void add(std::span<const UserItems> users) override {
    const auto check = [&](const arrow::Status& status) { arrow_check<IoError>(status, name_); };
    for (const UserItems& user : users) {
      const std::string id = utf8(user.user);
      for (size_t i = 0; i < user.items.size(); ++i) {
        check(users_.Append(id));
        check(ranks_.Append(static_cast<int32_t>(i + 1)));
        check(items_.Append(utf8(vocabulary_.item_id(user.items[i]))));
        for (size_t s = 0; s < scores_.size(); ++s) {
          check(user.scores.empty() ? scores_[s].AppendNull()
                                    : scores_[s].Append(user.scores[i * scores_.size() + s]));
        }
        const std::string title = utf8(vocabulary_.item_title(user.items[i]));
        check(title.empty() ? titles_.AppendNull() : titles_.Append(title));
      }
      if (users_.length() >= kRowGroup) write_rows();
    }
  }

  void close() override {
    if (users_.length() > 0) write_rows();
    arrow_check<IoError>(writer_->Close(), name_);
    arrow_check<IoError>(out_->Close(), name_);
  }

 private:
  static std::string utf8(std::string text) {
    return data::is_valid_utf8(text) ? std::move(text)
                                     : data::to_utf8(text, data::Encoding::latin1);
  }

  void write_rows() {
    arrow::ArrayVector arrays;
    const auto finish = [&](arrow::ArrayBuilder& builder) {
      arrays.push_back(arrow_value<IoError>(builder.Finish(), name_));
    };
    finish(users_);
    finish(ranks_);
    finish(items_);
    for (arrow::DoubleBuilder& builder : scores_) finish(builder);
    finish(titles_);
    const auto table = arrow::Table::Make(schema_, arrays);
    arrow_check<IoError>(writer_->WriteTable(*table, table->num_rows()), name_);
  }

  std::string name_;
  const data::Vocabulary& vocabulary_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> out_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  arrow::StringBuilder users_, items_, titles_;
  arrow::Int32Builder ranks_;
  std::vector<arrow::DoubleBuilder> scores_;
};

}  // namespace

std::unique_ptr<RecommendationWriter> make_parquet_writer(const std::filesystem::path& file,
                                                          const OutputTable& table) {
  return std::make_unique<ParquetWriter>(file, table);
}

}  // namespace seqfuse::serving
