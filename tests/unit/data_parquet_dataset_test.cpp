// Dataset directories of Parquet files written by other programs.
#include <gmock/gmock.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "base/file.h"
#include "tests/unit/parquet_files.h"

namespace seqfuse::data::data_parquet_dataset_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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
  write("sequences/a.parquet", {{"items", lists({{5}})}, {"actions", lists({{1700000000}})}});
  EXPECT_THAT(open_error(), HasSubstr("actions holds 1700000000, but at most 9999 is possible"));
  write("sequences/a.parquet",
        {{"items", lists({{5}})}, {"action_bits", lists({{int64_t{1} << 62}})}});
  EXPECT_THAT(open_error(), HasSubstr("column action_bits holds"));
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

TEST_F(ParquetTest, NestedColumnsBesideThoseOfTheSequences) {
  const auto numbers = array<arrow::Int64Builder, int64_t>({3, 4});
  const auto words = array<arrow::StringBuilder, std::string>({"x", "y"});
  write("sequences/a.parquet", {{"device", struct_of(numbers, words)},
                                {"user", array<arrow::StringBuilder, std::string>({"ann", "bob"})},
                                {"more", lists({{1}, {2, 3}})},
                                {"city", array<arrow::Int32Builder, int32_t>({2, 0})},
                                {"items", lists({{5, 1}, {9}})}});
  const auto dataset = Dataset::open(directory_.path());
  ASSERT_EQ(dataset->manifest().context.size(), 1U);
  EXPECT_EQ(dataset->context(0, 0), 2);
  EXPECT_EQ(dataset->user_id(1), "bob");
  EXPECT_THAT(dataset->user(0).items, ElementsAre(5, 1));
  write("sequences/a.parquet", {{"user", struct_of(numbers, words)}, {"items", lists({{1}, {2}})}});
  EXPECT_THAT(open_error(), HasSubstr("column user is struct<a: int64, b: string>"));
  write("sequences/a.parquet", {{"items", numbers}});
  EXPECT_THAT(open_error(), HasSubstr("column items is int64: expected a list"));
  write("sequences/a.parquet",
        {{"items", lists({{1}, {2}})}, {"timestamps", struct_of(words, words)}});
  EXPECT_THAT(open_error(), HasSubstr("column timestamps is struct<"));
}

TEST_F(ParquetTest, ListsOfEveryKindAndDictionaries) {
  const auto values = std::make_shared<arrow::Int16Builder>();
  arrow::FixedSizeListBuilder fixed(arrow::default_memory_pool(), values, 2);
  for (const int16_t value : {5, 1, 9, 2}) {
    if (values->length() % 2 == 0) {
      ASSERT_TRUE(fixed.Append().ok());
    }
    ASSERT_TRUE(values->Append(value).ok());
  }
  const auto larger = std::make_shared<arrow::UInt64Builder>();
  arrow::LargeListBuilder large(arrow::default_memory_pool(), larger);
  for (const uint64_t value : {1, 2, 3, 4}) {
    if (larger->length() % 2 == 0) {
      ASSERT_TRUE(large.Append().ok());
    }
    ASSERT_TRUE(larger->Append(value).ok());
  }
  const auto viewed = std::make_shared<arrow::Int64Builder>();
  arrow::ListViewBuilder views(arrow::default_memory_pool(), viewed);
  for (const int64_t value : {0, 1, 1, 0}) {
    if (viewed->length() % 2 == 0) {
      ASSERT_TRUE(views.Append(true, 2).ok());
    }
    ASSERT_TRUE(viewed->Append(value).ok());
  }
  const auto encoded = [](const std::shared_ptr<arrow::Array>& words) {
    return std::make_shared<arrow::DictionaryArray>(arrow::dictionary(arrow::int8(), words->type()),
                                                    array<arrow::Int8Builder, int8_t>({1, 0}),
                                                    words);
  };
  write("sequences/a.parquet",
        {{"user", encoded(array<arrow::StringBuilder, std::string>({"ann", "bob"}))},
         {"city", encoded(array<arrow::Int32Builder, int32_t>({7, 3}))},
         {"items", *fixed.Finish()},
         {"actions", *views.Finish()},
         {"timestamps", *large.Finish()}});
  const auto dataset = Dataset::open(directory_.path());
  EXPECT_EQ(dataset->user_id(0), "bob");
  ASSERT_EQ(dataset->manifest().context.size(), 1U);
  EXPECT_EQ(dataset->context(0, 0), 3);
  EXPECT_THAT(dataset->user(0).items, ElementsAre(5, 1));
  EXPECT_THAT(dataset->user(1).items, ElementsAre(9, 2));
  EXPECT_THAT(dataset->user(1).actions, ElementsAre(1, 0));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(3, 4));
}

TEST_F(ParquetTest, AUserHasOneRow) {
  write("sequences/a.parquet", {{"user", array<arrow::StringBuilder, std::string>({"ann", "bob"})},
                                {"items", lists({{5, 1}, {9}})}});
  write("sequences/b.parquet", {{"user", array<arrow::StringBuilder, std::string>({"eve", "ann"})},
                                {"items", lists({{5, 1}, {9}})}});
  EXPECT_THAT(open_error(), AllOf(HasSubstr("b.parquet"), HasSubstr("second row of user 'ann'")));
  write("sequences/b.parquet", {{"items", lists({{5, 1}, {9}})}});
  EXPECT_THAT(open_error(), HasSubstr("b.parquet: column user is missing"));
}

}  // namespace
}  // namespace seqfuse::data::data_parquet_dataset_test
