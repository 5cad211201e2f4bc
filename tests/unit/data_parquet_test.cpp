// Parquet: logs read by column names, and dataset directories that other programs wrote.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/dataset/arrow_files.h"
#include "data/ingest/preprocess.h"
#include "tests/temporary_directory.h"

namespace seqfuse::data {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Lists = std::vector<std::vector<int64_t>>;

template <class Builder, class Value>
std::shared_ptr<arrow::Array> array(const std::vector<Value>& values,
                                    Builder&& builder = Builder()) {
  for (const Value& value : values) EXPECT_TRUE(builder.Append(value).ok());
  return *builder.Finish();
}

std::shared_ptr<arrow::Array> lists(const Lists& rows) {
  const auto values = std::make_shared<arrow::Int32Builder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const auto& row : rows) {
    EXPECT_TRUE(builder.Append().ok());
    for (const int64_t value : row) EXPECT_TRUE(values->Append(static_cast<int32_t>(value)).ok());
  }
  return *builder.Finish();
}

class ParquetTest : public testing::Test {
 protected:
  using Columns = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;

  void write(const std::string& name, const Columns& columns) const {
    const fs::path file = directory_.path() / name;
    fs::create_directories(file.parent_path());
    arrow::FieldVector fields;
    arrow::ArrayVector arrays;
    for (const auto& [column, values] : columns) {
      fields.push_back(arrow::field(column, values->type()));
      arrays.push_back(values);
    }
    const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
    const auto out = *arrow::io::FileOutputStream::Open(file.string());
    ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, 2).ok());
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

TEST_F(ParquetTest, LogByColumnNames) {
  write("log.parquet",
        {{"who", array<arrow::Int64Builder, int64_t>({7, 7, 3})},
         {"what", array<arrow::StringBuilder, std::string>({"x", "y", "x"})},
         {"unused", array<arrow::DoubleBuilder, double>({1, 2, 3})},
         {"when", array<arrow::TimestampBuilder, int64_t>(
                      {20, 10, 5}, arrow::TimestampBuilder(arrow::timestamp(arrow::TimeUnit::MILLI),
                                                           arrow::default_memory_pool()))},
         {"stars", array<arrow::DoubleBuilder, double>({4.5, 2, 4.5})}});
  DatasetFormat format;
  format.name = "csv";
  format.user_column = "who";
  format.item_column = "what";
  format.time_column = "when";
  format.action_columns = {"stars"};
  format.action_rule = ActionRule::values;
  PreprocessOptions options;
  options.ingest.input = directory_.path() / "log.parquet";
  options.output = directory_.path() / "out";
  preprocess(format, options);
  const auto dataset = Dataset::open(options.output);
  EXPECT_EQ(dataset->user_id(1), "7");
  EXPECT_THAT(dataset->user(1).items, ElementsAre(2, 1));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(10, 20));
  EXPECT_THAT(dataset->user(1).actions, ElementsAre(0, 1));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("2", "4.5"));
}

TEST_F(ParquetTest, DirectoryOfAnotherWriter) {
  write("sequences/a.parquet", {{"user", array<arrow::StringBuilder, std::string>({"ann", "bob"})},
                                {"city", array<arrow::Int32Builder, int32_t>({2, 0})},
                                {"items", lists({{5, 1}, {9}})},
                                {"action_bits", lists({{0, 5}, {1}})},
                                {"timestamps", lists({{1, 1}, {7}})}});
  write("sequences/b.parquet", {{"timestamps", lists({{3}})},
                                {"items", lists({{2}})},
                                {"action_bits", lists({{0}})},
                                {"city", array<arrow::Int32Builder, int32_t>({1})},
                                {"user", array<arrow::StringBuilder, std::string>({"eve"})}});
  const auto dataset = Dataset::open(directory_.path());
  EXPECT_EQ(dataset->num_users(), 3);
  EXPECT_EQ(dataset->num_items(), 9);
  EXPECT_EQ(dataset->manifest().num_events, 4);
  EXPECT_EQ(dataset->manifest().action_kind, ActionKind::bits);
  EXPECT_EQ(dataset->manifest().num_actions, 8);
  EXPECT_EQ(dataset->manifest().context[0].vocab_size, 3);
  EXPECT_THAT(dataset->user(0).items, ElementsAre(5, 1));
  EXPECT_THAT(dataset->user(2).timestamps, ElementsAre(3));
  EXPECT_EQ(dataset->context(0, 2), 1);
  EXPECT_EQ(dataset->find_user("eve"), 2);
  EXPECT_EQ(dataset->find_item("9"), 9);
  EXPECT_FALSE(dataset->find_item("10"));
}

TEST_F(ParquetTest, InconsistentDirectoriesAreNamed) {
  write("sequences/a.parquet", {{"items", lists({{5, 1}})}, {"timestamps", lists({{2, 1}})}});
  EXPECT_THAT(open_error(), AllOf(HasSubstr("a.parquet"), HasSubstr("row 0 decrease")));
  write("sequences/a.parquet", {{"items", lists({{5, 1}})}, {"actions", lists({{2}})}});
  EXPECT_THAT(open_error(), HasSubstr("row 0 has 2 items but 1 actions"));
  write("sequences/a.parquet", {{"items", lists({{5, -1}})}});
  EXPECT_THAT(open_error(), HasSubstr("column items holds -1"));
  write("sequences/a.parquet", {{"item", lists({{5}})}});
  EXPECT_THAT(open_error(), HasSubstr("no column items"));
}

TEST_F(ParquetTest, ADamagedRowGroupIsNamed) {
  const fs::path file = directory_.path() / "sequences/a.parquet";
  fs::create_directories(file.parent_path());
  const auto items = lists({{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  const auto table =
      arrow::Table::Make(arrow::schema({arrow::field("items", items->type())}), {items});
  const auto out = *arrow::io::FileOutputStream::Open(file.string());
  const auto checksums = parquet::WriterProperties::Builder().enable_page_checksum()->build();
  ASSERT_TRUE(
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, 2, checksums).ok());
  ASSERT_TRUE(out->Close().ok());
  EXPECT_EQ(Dataset::open(directory_.path())->num_users(), 4);

  const auto reader = parquet::ParquetFileReader::OpenFile(file.string());
  const auto chunk = reader->metadata()->RowGroup(1)->ColumnChunk(0);
  const int64_t begin =
      chunk->has_dictionary_page() ? chunk->dictionary_page_offset() : chunk->data_page_offset();
  std::string content = read_file(file);
  content[static_cast<size_t>(begin + chunk->total_compressed_size()) - 1] ^= 1;
  write_file_atomically(file, content);
  EXPECT_THAT(open_error(), HasSubstr("a.parquet, row group 1: "));
}

}  // namespace
}  // namespace seqfuse::data
