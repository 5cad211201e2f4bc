#include "data/read/times.h"

#include <gtest/gtest.h>

#include <ostream>

namespace seqfuse::data {

void PrintTo(const Time& time, std::ostream* out) {
  *out << time.value << " + " << time.fraction << " e-9";
}

}  // namespace seqfuse::data

namespace seqfuse::data::data_times_test {
namespace {

TEST(Times, Numbers) {
  EXPECT_EQ(parse_time_number("978300760"), (Time{978300760, 0}));
  EXPECT_EQ(parse_time_number(" -5 "), (Time{-5, 0}));
  EXPECT_EQ(parse_time_number("007"), (Time{7, 0}));
  EXPECT_EQ(parse_time_number("1.9"), (Time{1, 900'000'000}));
  EXPECT_EQ(parse_time_number("-1.5"), (Time{-2, 500'000'000}));
  EXPECT_EQ(parse_time_number("9.783e8"), (Time{978300000, 0}));
  EXPECT_EQ(parse_time_number("17000000001E-1"), (Time{1700000000, 100'000'000}));
  EXPECT_EQ(parse_time_number("2.5e-3"), (Time{0, 2'500'000}));
  EXPECT_EQ(parse_time_number(".25"), (Time{0, 250'000'000}));
  EXPECT_EQ(parse_time_number("0.000"), (Time{0, 0}));
  EXPECT_EQ(parse_time_number("1.7e+09"), (Time{1700000000, 0}));
}

TEST(Times, NumbersAreExactOverAllOfInt64) {
  EXPECT_EQ(parse_time_number("9223372036854775807"), (Time{INT64_MAX, 0}));
  EXPECT_EQ(parse_time_number("-9223372036854775808"), (Time{INT64_MIN, 0}));
  EXPECT_EQ(parse_time_number("9007199254740993.1"), (Time{9007199254740993, 100'000'000}));
  EXPECT_EQ(parse_time_number("9223372036854775807.999999999"), (Time{INT64_MAX, 999'999'999}));
  EXPECT_EQ(parse_time_number("-9223372036854775807.5"), (Time{INT64_MIN, 500'000'000}));
  for (const char* text : {"9223372036854775808", "-9223372036854775808.1", "1e19", "1e300",
                           "99999999999999999999999"}) {
    EXPECT_FALSE(parse_time_number(text)) << text;
  }
}

TEST(Times, DecimalsBeyondTheNinthAreRoundedDown) {
  EXPECT_EQ(parse_time_number("1.1234567899"), (Time{1, 123'456'789}));
  EXPECT_EQ(parse_time_number("-1.0000000001"), (Time{-2, 999'999'999}));
  EXPECT_EQ(parse_time_number("-0.9999999999"), (Time{-1, 0}));
  EXPECT_EQ(parse_time_number("1e-30"), (Time{0, 0}));
  EXPECT_EQ(parse_time_number("-1e-30"), (Time{-1, 999'999'999}));
}

TEST(Times, RefusesTextsThatAreNoNumber) {
  for (const char* text : {"", "-", ".", "-.", "1.2.3", "1e", "e5", "+1", "1 2", "nan", "inf",
                           "0x1", "1,5", "2024-01-01"}) {
    EXPECT_FALSE(parse_time_number(text)) << text;
  }
}

TEST(Times, Iso8601) {
  EXPECT_EQ(parse_iso8601("1970-01-02"), (Time{86400, 0}));
  EXPECT_EQ(parse_iso8601("2001-01-01T00:00:01Z"), (Time{978307201, 0}));
  EXPECT_EQ(parse_iso8601("2001-01-01 00:00:01.250"), (Time{978307201, 250'000'000}));
  EXPECT_EQ(parse_iso8601("2001-01-01T00:01"), (Time{978307260, 0}));
  EXPECT_EQ(parse_iso8601("2001-01-01T00:01Z"), (Time{978307260, 0}));
  EXPECT_EQ(parse_iso8601("1969-12-31T23:59:59.75Z"), (Time{-1, 750'000'000}));
  EXPECT_EQ(parse_iso8601("2001-01-01 00:00:01.1234567891 UTC"), (Time{978307201, 123'456'789}));
}

TEST(Times, OffsetsFromUtc) {
  constexpr int64_t kNoon = 1709294400;  // 2024-03-01T12:00:00Z
  EXPECT_EQ(parse_iso8601("2024-03-01T12:00:00+00:00"), (Time{kNoon, 0}));
  EXPECT_EQ(parse_iso8601("2024-03-01T12:00:00+05:30"), (Time{kNoon - 19800, 0}));
  EXPECT_EQ(parse_iso8601("2024-03-01T12:00:00-0800"), (Time{kNoon + 28800, 0}));
  EXPECT_EQ(parse_iso8601("2024-03-01 12:00+01"), (Time{kNoon - 3600, 0}));
  EXPECT_EQ(parse_iso8601("2024-03-01 12:00:00.5 -00:30"), (Time{kNoon + 1800, 500'000'000}));
}

TEST(Times, Iso8601InOtherUnits) {
  EXPECT_EQ(parse_iso8601("1970-01-01T00:00:02.3456", 1000), (Time{2345, 600'000'000}));
  EXPECT_EQ(parse_iso8601("1969-12-31T23:59:59.0005", 1000), (Time{-1000, 500'000'000}));
  EXPECT_FALSE(parse_iso8601("9999-01-01", 1'000'000'000)) << "not an int64";
}

TEST(Times, RefusesTextsThatAreNotIso8601) {
  for (const char* text :
       {"x", "2001-13-01", "2001-02-29", "abcd-01-01", "2001-01-01T25:00:00", "12:00",
        "2001-01-01T", "2001-01-01T12", "2001-01-01T12:60", "2001-01-01T12:00:0",
        "2001-01-01T12:00:00+5", "2001-01-01T12:00:00+24:00", "2001-01-01T12:00:00+05:60",
        "2001-01-01T12:00:00 EST", "2001-01-01Z", "2001-01-01T12:00:00+05:3",
        "2001-01-01T12:00:00ZZ"}) {
    EXPECT_FALSE(parse_iso8601(text)) << text;
  }
}

}  // namespace
}  // namespace seqfuse::data::data_times_test
