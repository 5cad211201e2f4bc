// Parquet logs, read by column names.
#include <gmock/gmock.h>

#include "base/file.h"
#include "data/ingest/preprocess.h"
#include "tests/unit/parquet_files.h"

namespace seqfuse::data::data_parquet_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Int8s = arrow::Int8Builder;
using Int64s = arrow::Int64Builder;
using Doubles = arrow::DoubleBuilder;
using Strings = arrow::StringBuilder;

arrow::TimestampBuilder timestamps(arrow::TimeUnit::type unit) {
  return {arrow::timestamp(unit), arrow::default_memory_pool()};
}

std::shared_ptr<arrow::Array> encoded(const std::shared_ptr<arrow::Array>& values) {
  return std::make_shared<arrow::DictionaryArray>(arrow::dictionary(arrow::int8(), values->type()),
                                                  array<Int8s, int8_t>({2, 0, 1}), values);
}

class ParquetLog : public ParquetTest {
 protected:
  ParquetLog() {
    format_.name = "csv";
    format_.from_flags = true;
    format_.user_column = "user";
    format_.item_column = "item";
    format_.time_column = "ts";
    options_.ingest.input = directory_.path() / "in";
    options_.output = directory_.path() / "out";
    options_.force = true;
  }

  std::shared_ptr<const Dataset> run() {
    preprocess(format_, options_);
    return Dataset::open(options_.output);
  }
  std::string refused() {
    try {
      preprocess(format_, options_);
      ADD_FAILURE() << "was not refused";
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  // The label names of three rows with these actions.
  std::vector<std::string> labels(const std::shared_ptr<arrow::Array>& actions) {
    format_.time_column = "";
    format_.action_columns = {"action"};
    format_.action_rule = ActionRule::values;
    write("in/a.parquet", {{"user", array<Int64s, int64_t>({1, 1, 1})},
                           {"item", array<Int64s, int64_t>({1, 2, 3})},
                           {"action", actions}});
    return run()->manifest().action_names;
  }

  DatasetFormat format_;
  PreprocessOptions options_;
};

TEST_F(ParquetLog, ByColumnNames) {
  write("log.parquet",
        {{"who", array<arrow::Int64Builder, int64_t>({7, 7, 3})},
         {"what", array<arrow::StringBuilder, std::string>({"x", "y", "x"})},
         {"unused", array<arrow::DoubleBuilder, double>({1, 2, 3})},
         {"when", array<arrow::TimestampBuilder, int64_t>(
                      {20, 10, 5}, arrow::TimestampBuilder(arrow::timestamp(arrow::TimeUnit::MILLI),
                                                           arrow::default_memory_pool()))},
         {"stars", array<arrow::DoubleBuilder, double>({4.5, 2, 4.5})}});
  format_.user_column = "who";
  format_.item_column = "what";
  format_.time_column = "when";
  format_.action_columns = {"stars"};
  format_.action_rule = ActionRule::values;
  options_.ingest.input = directory_.path() / "log.parquet";
  const auto dataset = run();
  EXPECT_EQ(dataset->user_id(1), "7");
  EXPECT_THAT(dataset->user(1).items, ElementsAre(2, 1));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(10, 20));
  EXPECT_THAT(dataset->user(1).actions, ElementsAre(0, 1));
  EXPECT_THAT(dataset->manifest().action_names, ElementsAre("2", "4.5"));
}

// Each nested column has several leaves, which shift the indices of later columns.
TEST_F(ParquetLog, NestedColumnsBesideTheWantedOnes) {
  const auto words = array<Strings, std::string>({"ios", "web"});
  const auto numbers = array<Int64s, int64_t>({1, 2});
  const auto map =
      *arrow::MapArray::FromArrays(array<arrow::Int32Builder, int32_t>({0, 1, 2}), words, numbers);
  write("in/a.parquet", {{"device", struct_of(words, struct_of(words, numbers))},
                         {"session", array<Int64s, int64_t>({901, 902})},
                         {"user", array<Int64s, int64_t>({11, 12})},
                         {"tags", map},
                         {"item", array<Int64s, int64_t>({501, 502})},
                         {"seen", lists({{1, 2}, {}})},
                         {"ts", array<Int64s, int64_t>({1000, 1001})},
                         {"last", struct_of(numbers, numbers)}});
  const auto dataset = run();
  ASSERT_EQ(dataset->num_users(), 2);
  EXPECT_EQ(dataset->user_id(0), "11");
  EXPECT_EQ(dataset->user_id(1), "12");
  EXPECT_EQ(dataset->item_id(1), "501");
  EXPECT_EQ(dataset->item_id(2), "502");
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(1000));
  EXPECT_THAT(dataset->user(1).timestamps, ElementsAre(1001));
  format_.item_column = "device";
  EXPECT_THAT(refused(), AllOf(HasSubstr("a.parquet: column device is struct<a: string"),
                               HasSubstr("expected one number or text")));
  format_.item_column = "item";
  format_.context = {{"seen", "seen"}};
  EXPECT_THAT(refused(), HasSubstr("column seen is list<"));
}

TEST_F(ParquetLog, LabelsOfAnyType) {
  EXPECT_THAT(labels(array<Int8s, int8_t>({10, 9, 9})), ElementsAre("9", "10"));
  EXPECT_THAT(labels(array<arrow::FloatBuilder, float>({10, 4, 2.5F})),
              ElementsAre("2.5", "4", "10"));
  EXPECT_THAT(labels(array<arrow::BooleanBuilder, bool>({true, false, true})),
              ElementsAre("false", "true"));
  EXPECT_THAT(labels(encoded(array<Strings, std::string>({"4.0", "10", "4"}))),
              ElementsAre("4", "10"));
  EXPECT_THAT(labels(encoded(array<Int64s, int64_t>({4, 10, 2}))), ElementsAre("2", "4", "10"));
  EXPECT_THAT(labels(array<arrow::Decimal128Builder, arrow::Decimal128>(
                  {arrow::Decimal128(400), arrow::Decimal128(1000), arrow::Decimal128(250)},
                  arrow::Decimal128Builder(arrow::decimal128(6, 2)))),
              ElementsAre("2.5", "4", "10"));
}

TEST_F(ParquetLog, BooleansAreBits) {
  format_.action_columns = {"like", "buy"};
  format_.action_rule = ActionRule::bits;
  format_.time_column = "";
  write("in/a.parquet", {{"user", array<Int64s, int64_t>({1, 1})},
                         {"item", array<Int64s, int64_t>({1, 2})},
                         {"like", array<arrow::BooleanBuilder, bool>({true, false})},
                         {"buy", array<arrow::FloatBuilder, float>({0, 1})}});
  EXPECT_THAT(run()->user(0).actions, ElementsAre(1, 2));
}

TEST_F(ParquetLog, FractionsOfDoublesOrderEvents) {
  write("in/a.parquet", {{"user", array<Int64s, int64_t>({1, 1, 1})},
                         {"item", array<Int64s, int64_t>({3, 1, 2})},
                         {"ts", array<Doubles, double>({1.7e9 + 0.9, 1.7e9 + 0.1, 1.7e9 + 0.5})}});
  const auto dataset = run();
  EXPECT_THAT(dataset->user(0).items, ElementsAre(1, 2, 3));
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(1700000000, 1700000000, 1700000000));
}

TEST_F(ParquetLog, TimestampsOfSeveralUnitsBecomeTheFirstFiles) {
  const auto write_part = [&](const std::string& name, std::vector<int64_t> items,
                              const std::vector<int64_t>& times, arrow::TimeUnit::type unit) {
    write(name, {{"user", array<Int64s, int64_t>(std::vector<int64_t>(items.size(), 1))},
                 {"item", array<Int64s, int64_t>(items)},
                 {"ts", array<arrow::TimestampBuilder, int64_t>(times, timestamps(unit))}});
  };
  write_part("in/a.parquet", {4, 1}, {3, -1}, arrow::TimeUnit::MILLI);
  write_part("in/b.parquet", {3, 2}, {2'999'999, -999'999}, arrow::TimeUnit::NANO);
  write_part("in/c.parquet", {5}, {1}, arrow::TimeUnit::SECOND);
  std::filesystem::create_directories(options_.ingest.input);
  write_file_atomically(options_.ingest.input / "d.csv",
                        "user,item,ts\n1,6,1970-01-01T00:00:01.0004\n");
  const auto dataset = run();
  EXPECT_THAT(dataset->user(0).items, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(dataset->user(0).timestamps, ElementsAre(-1, -1, 2, 3, 1000, 1000));
  EXPECT_EQ(dataset->manifest().time_units_per_second, 1000);
  write("in/e.parquet", {{"user", array<Int64s, int64_t>({1})},
                         {"item", array<Int64s, int64_t>({7})},
                         {"ts", array<Int64s, int64_t>({4})}});
  EXPECT_THAT(refused(), AllOf(HasSubstr("column ts holds timestamps in"), HasSubstr("a.parquet"),
                               HasSubstr("numbers without a unit in"), HasSubstr("e.parquet")));
}

TEST_F(ParquetLog, ProcessedSequences) {
  options_.ingest.kind = InputKind::processed_seqs;
  options_.ingest.input /= "a.parquet";
  format_.time_column = "";
  write("in/a.parquet", {{"user_id", array<Int64s, int64_t>({1, 2})},
                         {"item_id", array<Strings, std::string>({"[7, 8]", "[9]"})}});
  const auto dataset = run();
  EXPECT_EQ(dataset->num_items(), 3);
  EXPECT_THAT(dataset->user(0).items, ElementsAre(1, 2));
}

TEST_F(ParquetLog, PartitionsAreColumns) {
  format_.time_column = "dt";
  write("in/dt=2024-01-02/a.parquet",
        {{"item", array<Int64s, int64_t>({2})}, {"user", array<Int64s, int64_t>({1})}});
  write("in/dt=2024-01-01/000000_0",  // as Hive names it
        {{"user", array<Int64s, int64_t>({1})}, {"item", array<Int64s, int64_t>({1})}});
  EXPECT_THAT(run()->user(0).items, ElementsAre(1, 2));
}

TEST_F(ParquetLog, BytesThatAreNotUtf8) {
  format_.time_column = "";
  write("in/a.parquet", {{"user", array<Int64s, int64_t>({1, 1})},
                         {"item", array<arrow::BinaryBuilder, std::string>({"ok", "caf\xE9"})}});
  EXPECT_THAT(refused(), HasSubstr("a.parquet:2: column item is 'caf\\xE9', which is not UTF-8"));
  options_.ingest.on_bad_row = BadRows::skip;
  EXPECT_EQ(run()->num_items(), 1);
}

}  // namespace
}  // namespace seqfuse::data::data_parquet_test
