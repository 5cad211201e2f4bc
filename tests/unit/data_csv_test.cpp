#include "data/read/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace seqfuse::data {
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
  EXPECT_EQ(whole_rows("a\nb\nc", true), 4U);
  EXPECT_EQ(whole_rows("a\n\"b\nc", true), 2U);
  EXPECT_EQ(whole_rows("a\n\"b\nc", false), 5U);
  EXPECT_EQ(whole_rows("no newline", true), 0U);
}

TEST(Csv, ByteOrderMarks) {
  EXPECT_EQ(without_bom("\xEF\xBB\xBFuser", "f"), "user");
  EXPECT_THROW(without_bom(std::string_view("\xFF\xFEu\0", 4), "f"), DataError);
}

TEST(Csv, CanonicalIntegersAreExactlyInt64) {
  EXPECT_EQ(parse_canonical_int64("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_canonical_int64("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_canonical_int64("0"), 0);
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "99999999999999999999",
                           "", "-", "-0", "007", "+1", "1.0", "1 ", "x"}) {
    EXPECT_FALSE(parse_canonical_int64(text)) << text;
  }
  // Eight digits are read at once: any other byte in any place is found.
  EXPECT_EQ(parse_canonical_int64("12345678"), 12345678);
  EXPECT_EQ(parse_canonical_int64("-1649369323941"), -1649369323941);
  for (size_t place = 0; place < 8; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      if (byte >= '0' && byte <= '9') continue;
      std::string text = "900000009";
      text[place] = static_cast<char>(byte);
      EXPECT_FALSE(parse_canonical_int64(text)) << "byte " << byte << " at " << place;
    }
  }
}

TEST(Csv, Times) {
  EXPECT_EQ(parse_time("978300760"), 978300760);
  EXPECT_EQ(parse_time("-5"), -5);
  EXPECT_EQ(parse_time("1.9"), 1);
  EXPECT_EQ(parse_time("-1.5"), -2);
  EXPECT_EQ(parse_time("9.783e8"), 978300000);
  EXPECT_EQ(parse_time("1970-01-02"), 86400);
  EXPECT_EQ(parse_time("2001-01-01T00:00:01Z"), 978307201);
  EXPECT_EQ(parse_time("2001-01-01 00:00:01.250"), 978307201);
  for (const char* text : {"", "x", "2001-13-01", "2001-01-01T25:00:00", "nan", "1e300", "12:00"}) {
    EXPECT_FALSE(parse_time(text)) << text;
  }
}

TEST(Csv, Latin1BecomesUtf8OnceOnly) {
  EXPECT_EQ(latin1_to_utf8("Mis\xE9rables"), "Mis\xC3\xA9rables");
  EXPECT_EQ(latin1_to_utf8("Mis\xC3\xA9rables"), "Mis\xC3\xA9rables");
}

}  // namespace
}  // namespace seqfuse::data
