// UTF-8: the first invalid byte, and characters whose bytes arrive one by one.
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace seqfuse::utf8_test {
namespace {

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), 0);
  EXPECT_EQ(find_invalid_utf8("twelve ascii letters, and \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            37);
  EXPECT_EQ(find_invalid_utf8("abcdefgh\xFFz"), 8);
  EXPECT_EQ(find_invalid_utf8("a\xC0\xAF"), 1);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1);      // a surrogate
  EXPECT_EQ(find_invalid_utf8("a\xF4\x90\x80\x80"), 1);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xE2\x82"), 2);         // cut off
}

TEST(Utf8, ReplacesEachMaximalInvalidPart) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xFE"), "a\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\xE2\x82\xAC\xF0\x9F"), "\uFFFD\u20AC\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, EveryCharacterIsReadAsItWasWritten) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    ASSERT_EQ(find_invalid_utf8(text), text.size()) << std::hex << static_cast<uint32_t>(code);
    ASSERT_EQ(character_at(text, 0).code, code);
    ASSERT_EQ(character_at(text, 0).length, text.size());
  }
}

TEST(Utf8, AssemblesCharactersByteByByte) {
  const std::string text = "a\u00E9\u20AC\U0001F600\xE2\x82";
  Utf8Assembler assembler;
  std::string whole;
  for (const char byte : text) {
    std::string out;
    assembler.push(std::string_view(&byte, 1), out);
    EXPECT_EQ(find_invalid_utf8(out), out.size());
    whole += out;
  }
  assembler.finish(whole);
  EXPECT_EQ(whole, "a\u00E9\u20AC\U0001F600\uFFFD");
}

}  // namespace
}  // namespace seqfuse::utf8_test
