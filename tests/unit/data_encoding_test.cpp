#include "data/read/text_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace seqfuse::data::data_encoding_test {
namespace {

using testing::HasSubstr;

TEST(Encoding, ByteOrderMarks) {
  EXPECT_EQ(without_bom("\xEF\xBB\xBFuser", "f"), "user");
  EXPECT_THROW(without_bom(std::string_view("\xFF\xFEu\0", 4), "f"), DataError);
}

TEST(Encoding, Utf8IsWhatTheStandardSays) {
  for (const char* text : {"", "plain", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x8E\xB5",
                           "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
  for (const char* text : {"caf\xE9", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                           "\xF4\x90\x80\x80", "\x80", "12345678\xFF",
                           "\xFF"
                           "12345678"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << excerpt(text);
  }
}

TEST(Encoding, UnreadableRowsSayWhy) {
  EXPECT_EQ(unreadable("1,caf\xC3\xA9,1"), "");
  EXPECT_THAT(unreadable("1,caf\xE9,1"),
              testing::AllOf(HasSubstr("'1,caf\\xE9,1' is not UTF-8"), HasSubstr("--encoding")));
  EXPECT_THAT(unreadable(std::string_view("1\0,2", 4)), HasSubstr("NUL"));
  EXPECT_THAT(unreadable("1,2\r3,4"), HasSubstr("CR without LF"));
  EXPECT_EQ(unreadable("1,\"a\rb\""), "") << "within quotes";
  EXPECT_TRUE(is_readable("a,b\r\nc,d\r\n"));
  for (const std::string_view text :
       {std::string_view("a\0", 2), std::string_view("a\xE9\n"), std::string_view("a\rb\r\n")}) {
    EXPECT_FALSE(is_readable(text)) << excerpt(text);
  }
}

TEST(Encoding, SingleByteEncodingsBecomeUtf8) {
  EXPECT_EQ(to_utf8("Mis\xE9rables", Encoding::latin1), "Mis\xC3\xA9rables");
  EXPECT_EQ(to_utf8("\x80 5 \x93x\x94", Encoding::windows_1252),
            "\xE2\x82\xAC 5 \xE2\x80\x9Cx\xE2\x80\x9D");
  EXPECT_EQ(to_utf8("\x80", Encoding::latin1), "\xC2\x80");
  EXPECT_EQ(to_utf8("Mis\xC3\xA9rables", Encoding::utf8_or_latin1), "Mis\xC3\xA9rables");
  EXPECT_EQ(to_utf8("Mis\xE9rables", Encoding::utf8_or_latin1), "Mis\xC3\xA9rables");
}

TEST(Encoding, ExcerptsArePrintable) {
  EXPECT_EQ(excerpt("a\tb\xE9\x7F"), "a\\x09b\\xE9\\x7F");
  std::string euros;
  for (int i = 0; i < 50; ++i) euros += "\xE2\x82\xAC";
  EXPECT_EQ(excerpt(euros), euros.substr(0, 60) + "...") << "no character is cut";
}

}  // namespace
}  // namespace seqfuse::data::data_encoding_test
