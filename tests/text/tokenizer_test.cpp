// Ids and texts of small tokenizers; the differential test is tests/python/tokenizer_test.py.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/random.h"
#include "base/utf8.h"
#include "tests/text/small_tokenizer.h"

namespace seqfuse::text::tokenizer_test {
namespace {
using testing::HasSubstr;

TEST(Tokenizer, MergesInOrderOfRank) {
  const Tokenizer tokenizer = made(small_tokenizer());
  EXPECT_EQ(tokenizer.encode("abc ab ac"), (Ids{257, ' ', 256, 258, 'c'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("\u00E9\n"), (Ids{0xC3, 0xA9, '\n'}));
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.largest_id(), 259);
  EXPECT_EQ(tokenizer.id_of("Ġa"), 258);
  EXPECT_EQ(tokenizer.id_of("Ġb"), std::nullopt);
  EXPECT_EQ(tokenizer.token_of(257), "abc");
  EXPECT_EQ(tokenizer.token_of(260), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(259));
}

TEST(Tokenizer, MergesMayBePairs) {
  Json json = small_tokenizer();
  json["model"]["merges"] = Json::array({{"a", "b"}, {"ab", "c"}, {"Ġ", "a"}});
  EXPECT_EQ(made(json).encode("abc a"), (Ids{257, 258}));
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  Json json = small_tokenizer();
  json["model"]["vocab"]["Ġxy"] = 259;
  json["added_tokens"] = nullptr;
  EXPECT_EQ(made(json).encode(" xy"), (Ids{' ', 'x', 'y'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(made(json).encode(" xy"), Ids{259});
}

TEST(Tokenizer, FindsAddedTokensInsideText) {
  const Tokenizer tokenizer = made(small_tokenizer());
  EXPECT_EQ(tokenizer.encode("abc<|end|>ab<|en"), (Ids{257, 259, 256, '<', '|', 'e', 'n'}));
  const Ids ids = tokenizer.encode("a<|end|>b");
  EXPECT_EQ(tokenizer.decode(ids), "ab");
  EXPECT_EQ(tokenizer.decode(ids, false), "a<|end|>b");
}

TEST(Tokenizer, AddedTokensTakeInWhiteSpaceAndMayNeedToStandAlone) {
  Json json = small_tokenizer();
  Json& token = json["added_tokens"][0];
  token["lstrip"] = true;
  EXPECT_EQ(made(json).encode("a \t<|end|> b"), (Ids{'a', 259, ' ', 'b'}));
  token["rstrip"] = true;
  EXPECT_EQ(made(json).encode("a <|end|>\u3000b"), (Ids{'a', 259, 'b'}));
  token = {{"id", 257}, {"content", "abc"}, {"single_word", true}, {"normalized", false}};
  json["model"]["merges"] = Json::array();
  EXPECT_EQ(made(json).encode("abc,abcd\u00E9abc"),
            (Ids{257, ',', 'a', 'b', 'c', 'd', 0xC3, 0xA9, 'a', 'b', 'c'}));
}

TEST(Tokenizer, NormalizesBeforeAndAfterAddedTokens) {
  Json json = small_tokenizer();
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFKC"}},
        {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "ab"}}}}};
  EXPECT_EQ(made(json).encode("xc\uFF41\uFF42"), (Ids{257, 256}));
  EXPECT_EQ(made(json).encode("e\u0301"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(made(json).encode("\uFF1C|end|>").size(), 7);  // matched in the original text
  json["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(made(json).encode("\uFF1C|end|>"), Ids{259});
  json["added_tokens"][0]["content"] = "<|x|>";
  EXPECT_EQ(made(json).encode("<|ab|>"), Ids{259});
  EXPECT_EQ(made(json).decode(Ids{259}), "<|ab|>");
}

TEST(Tokenizer, CharactersWithoutTokens) {
  Json json = small_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["added_tokens"] = nullptr;
  Json& model = json["model"];
  model["vocab"] = {{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  model["merges"] = Json::array();
  EXPECT_EQ(made(json).encode("axya"), (Ids{1, 1}));
  model["unk_token"] = "<unk>";
  EXPECT_EQ(made(json).encode("axya"), (Ids{1, 0, 0, 1}));
  model["fuse_unk"] = true;
  EXPECT_EQ(made(json).encode("axya"), (Ids{1, 0, 1}));
  model["byte_fallback"] = true;
  EXPECT_EQ(made(json).encode("a\u00E9"), (Ids{1, 2, 3}));
  model["unk_token"] = "<none>";
  EXPECT_THAT(error_of([&] { made(json).encode("ax"); }),
              HasSubstr("no token for \"x\", and its unk_token \"<none>\""));
}

TEST(Tokenizer, TemplatesAddTokensOnRequest) {
  Json json = small_tokenizer();
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens",
       {{"<|end|>", {{"id", "<|end|>"}, {"ids", {259}}, {"tokens", {"<|end|>"}}}}}}};
  EXPECT_EQ(made(json).encode("ab"), (Ids{259, 256}));
  EXPECT_EQ(made(json).encode("ab", {.add_special_tokens = false}), Ids{256});
}

TEST(Tokenizer, InvalidUtf8IsRefusedOrReplaced) {
  const Tokenizer tokenizer = made(small_tokenizer());
  EXPECT_EQ(error_of([&] { tokenizer.encode("ab\xFFz"); }),
            "the text is not UTF-8: byte 2 (0xFF) begins no character");
  EXPECT_EQ(tokenizer.encode("ab\xFF", {.replace_invalid_utf8 = true}),
            (Ids{256, 0xEF, 0xBF, 0xBD}));
}

TEST(Tokenizer, StreamsWholeCharactersOnly) {
  const Tokenizer tokenizer = made(small_tokenizer());
  const std::string text = "ab \u00E9\u20AC\U0001F600<|end|> abc";
  const Ids ids = tokenizer.encode(text);
  StreamDecoder decoder(tokenizer, false);
  std::string whole;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_EQ(find_invalid_utf8(part), part.size());
    whole += part;
  }
  EXPECT_EQ(whole, text);
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(tokenizer.decode(Ids{0xE2, 0x82, 'a', 0xF0}), "\uFFFDa\uFFFD");
  EXPECT_EQ(tokenizer.decode(Ids{-1, 'a', 100'000}), "a");
}

TEST(Tokenizer, DecodersOfCharacterModels) {
  Json json = small_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["added_tokens"] = nullptr;
  json["model"]["vocab"] = {{"▁a", 0}, {"b", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}};
  json["model"]["merges"] = Json::array();
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const Tokenizer tokenizer = made(json);
  EXPECT_EQ(tokenizer.decode(Ids{0, 1, 0, 2, 3, 2}), "ab a\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.decode(Ids{0, 2, 3, 1}), "a\u00E9b");
  json["decoder"] = nullptr;
  EXPECT_EQ(made(json).decode(Ids{0, 1}), "▁a b");
  json["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", "b"}, {"start", 0}, {"stop", 2}}}}};
  EXPECT_EQ(made(json).decode(Ids{1, 0, 1, 1, 1}), "b▁ab");
}

// A merge at one of 100,000 places must not rescan all of them.
TEST(Tokenizer, LongWordsTakeTimeInProportion) {
  const Tokenizer tokenizer = made(small_tokenizer());
  const auto seconds = [&](int letters) {
    std::string word;
    Random random(1);
    for (int i = 0; i < letters; ++i) word += "abcx"[random() % 4];
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(1000);
  EXPECT_LT(seconds(100'000), 5);  // some 0.03 s; quadratic: minutes
}

}  // namespace
}  // namespace seqfuse::text::tokenizer_test
