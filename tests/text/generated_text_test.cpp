// Text of generated ids: shown in whole characters, never past the beginning of a stop string.
#include "text/generated_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/small_tokenizer.h"

namespace seqfuse::text::generated_text_test {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;

const Tokenizer& tokenizer() {
  static const Tokenizer made_once = made(small_tokenizer());
  return made_once;
}

// The text shown after each byte, then at the end.
std::vector<std::string> shown(const std::string& bytes, const std::vector<std::string>& stops) {
  GeneratedText generated(tokenizer(), stops);
  std::vector<std::string> pieces;
  for (const char byte : bytes) pieces.push_back(generated.push(static_cast<uint8_t>(byte)));
  pieces.push_back(generated.finish());
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  EXPECT_EQ(all, generated.text());
  return pieces;
}

std::string text_until(const std::string& bytes, const std::vector<std::string>& stops) {
  GeneratedText generated(tokenizer(), stops);
  size_t count = 0;
  while (count < bytes.size() && !generated.stopped()) {
    generated.push(static_cast<uint8_t>(bytes[count++]));
  }
  generated.finish();
  return generated.text() + (generated.stopped() ? "|" + std::to_string(count) : "");
}

TEST(GeneratedText, ShowsWholeCharacters) {
  EXPECT_THAT(shown("a\u20ACb", {}), ElementsAre("a", "", "", "\u20AC", "b", ""));
  EXPECT_THAT(shown("a\xE2\x82", {}), ElementsAre("a", "", "", "\uFFFD"));
}

TEST(GeneratedText, HoldsBackWhatMayBecomeAStop) {
  EXPECT_THAT(shown("xabxabc!", {"abc"}), ElementsAre("x", "", "", "abx", "", "", "", "", ""));
  EXPECT_THAT(shown("aab", {"ab"}), ElementsAre("", "a", "", ""));
  EXPECT_THAT(shown("xab", {"abc"}), ElementsAre("x", "", "", "ab"));  // it never comes
}

TEST(GeneratedText, EndsBeforeTheFirstStopThatIsComplete) {
  EXPECT_EQ(text_until("hello world", {"o w"}), "hell|7");
  EXPECT_EQ(text_until("hello world", {"zz", "world", "lo"}), "hel|5");
  EXPECT_EQ(text_until("xabcd", {"abcd", "bc"}), "xa|4");
  EXPECT_EQ(text_until("aaab", {"aab"}), "a|4");  // begins again inside itself
  EXPECT_EQ(text_until("hello", {"helloo"}), "hello");
  EXPECT_EQ(text_until("1 \u20AC 2", {"\u20AC"}), "1 |5");
  // One token that holds the stop and more.
  GeneratedText generated(tokenizer(), {"b"});
  EXPECT_EQ(generated.push(257), "a");  // "abc"
  EXPECT_TRUE(generated.stopped());
  EXPECT_EQ(generated.push('x') + generated.finish(), "");
  EXPECT_EQ(generated.text(), "a");
}

TEST(GeneratedText, RefusesStopsThatCannotCome) {
  EXPECT_THAT(error_of([] { GeneratedText(tokenizer(), {"a", ""}); }), HasSubstr("is empty"));
  EXPECT_THAT(error_of([] { GeneratedText(tokenizer(), {"a\xFF"}); }),
              HasSubstr("not UTF-8: byte 1"));
}

}  // namespace
}  // namespace seqfuse::text::generated_text_test
