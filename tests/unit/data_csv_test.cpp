#include "data/read/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace seqfuse::data::data_csv_test {
namespace {

using testing::ElementsAre;
using Rows = std::vector<std::vector<std::string>>;

Rows split(std::string_view text, const CsvDialect& dialect = {}) {
  Rows result;
  RowSplitter rows(text, dialect);
  while (rows.next()) {
    if (rows.malformed() != nullptr) {
      result.push_back({"malformed", rows.malformed()});
    } else {
      result.emplace_back(rows.fields().begin(), rows.fields().end());
    }
  }
  return result;
}

TEST(Csv, LineEndingsBlankLinesAndNoFinalNewline) {
  EXPECT_EQ(split("a,b\r\n\r\n\nc,\n,d"), (Rows{{"a", "b"}, {"c", ""}, {"", "d"}}));
  EXPECT_EQ(split(""), Rows{});
  EXPECT_EQ(split(","), (Rows{{"", ""}}));
}

TEST(Csv, QuotesCommasAndNewlinesWithinFields) {
  EXPECT_EQ(split("1,\"a, b\",2\n\"say \"\"x\"\"\",\"\"\n\"two\nlines\",3\r\n"),
            (Rows{{"1", "a, b", "2"}, {"say \"x\"", ""}, {"two\nlines", "3"}}));
  EXPECT_EQ(split("5\" screen,1\n"), (Rows{{"5\" screen", "1"}})) << "a quote within an open field";
}

TEST(Csv, ManyUnescapedFieldsOfARowStayValid) {
  std::string row;
  for (int i = 0; i < 100; ++i) row += (i > 0 ? ",\"\"\"" : "\"\"\"") + std::to_string(i) + "\"";
  const Rows rows = split(row);
  ASSERT_EQ(rows.size(), 1U);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(rows[0][i], "\"" + std::to_string(i));
}

TEST(Csv, MalformedQuotesEndWithTheirLine) {
  EXPECT_EQ(split("\"open,1\na,b\n"),
            (Rows{{"malformed", "a quoted field is not closed"}, {"a", "b"}}));
  EXPECT_EQ(split("\"x\"y,1\na,b\n"),
            (Rows{{"malformed", "text follows a closing quote"}, {"a", "b"}}));
}

TEST(Csv, LongDelimiterAndNoQuotes) {
  EXPECT_EQ(split("1::\"T\": x::3\n", {"::", false}), (Rows{{"1", "\"T\": x", "3"}}));
  EXPECT_EQ(split("a:b::c", {"::", false}), (Rows{{"a:b", "c"}}));
  EXPECT_EQ(split("a:::b::::c:", {"::", false}), (Rows{{"a", ":b", "", "c:"}}));
}

TEST(Csv, DelimitersAtEveryPlaceOfARow) {
  for (size_t length = 0; length < 40; ++length) {
    for (size_t at = 0; at < length; ++at) {
      std::string row(length, 'x');
      row[at] = ',';
      EXPECT_EQ(split(row), (Rows{{row.substr(0, at), row.substr(at + 1)}}));
    }
  }
  EXPECT_EQ(split(std::string(20, ',')), (Rows{std::vector<std::string>(21)}));
  EXPECT_EQ(split("a\xAC,\x2C\x80\x01,b\xFF"), (Rows{{"a\xAC", "", "\x80\x01", "b\xFF"}}));
}

TEST(Csv, LineNumbersCountNewlinesWithinQuotes) {
  RowSplitter rows("\"a\nb\"\n\nc\n", {});
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.lines_before(), 0);
  ASSERT_TRUE(rows.next());
  EXPECT_EQ(rows.lines_before(), 3);
}

TEST(Csv, WholeRowsCutOutsideOfQuotes) {
  EXPECT_EQ(whole_rows("a\nb\nc", {}), 4U);
  EXPECT_EQ(whole_rows("a\n\"b\nc", {}), 2U);
  EXPECT_EQ(whole_rows("a\n\"b\nc", {",", false}), 5U);
  EXPECT_EQ(whole_rows("no newline", {}), 0U);
  EXPECT_EQ(whole_rows("7\" vinyl,x\nb,\"two\n", {}), 11U)
      << "a quote within a field opens nothing";
  EXPECT_EQ(whole_rows("7\",\"two\nlines\",x\nb", {}), 17U);
  EXPECT_EQ(whole_rows("\"x\"y,1\na,\"b\nc", {}), 7U) << "a malformed row ends with its line";
  EXPECT_EQ(whole_rows("a:::\"\nb\n\"", {"::", true}), 8U) << "::: is a delimiter and a colon";
  EXPECT_EQ(whole_rows("a::\"\nb\n\"", {"::", true}), 0U);
}

TEST(Csv, AQuoteThatIsFarFromItsRowsStartClosesNothing) {
  const CsvDialect dialect = {",", true, 8};
  EXPECT_EQ(split("\"a\nb\"\n", dialect), (Rows{{"a\nb"}}));
  EXPECT_EQ(split("\"a\nb1234567\"\n", dialect),
            (Rows{{"malformed", "a quoted field is not closed"}, {"b1234567\""}}));
}

}  // namespace
}  // namespace seqfuse::data::data_csv_test
