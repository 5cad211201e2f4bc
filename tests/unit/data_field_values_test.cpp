#include "data/read/field_values.h"

#include <gtest/gtest.h>

#include <string>

namespace seqfuse::data::data_field_values_test {
namespace {

TEST(FieldValues, CanonicalIntegersAreExactlyInt64) {
  EXPECT_EQ(parse_canonical_int64("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_canonical_int64("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_canonical_int64("0"), 0);
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "99999999999999999999",
                           "", "-", "-0", "007", "+1", "1.0", "1 ", "x"}) {
    EXPECT_FALSE(parse_canonical_int64(text)) << text;
  }
  // Eight digits are read at once: any other byte must be detected at any position.
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

TEST(FieldValues, FlagsAreNumbersOrWords) {
  for (const char* text :
       {"1", "9", "2.5", "-1", "true", "True", "TRUE", "t", "yes", "Y", " true "}) {
    EXPECT_EQ(parse_flag(text), true) << text;
  }
  for (const char* text : {"0", "0.0", "-0", "false", "False", "FALSE", "F", "no", "n", "00"}) {
    EXPECT_EQ(parse_flag(text), false) << text;
  }
  for (const char* text : {"", " ", "tru", "nan", "NA", "on", "1 0"}) {
    EXPECT_FALSE(parse_flag(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace seqfuse::data::data_field_values_test
