// BERT's tokenizer: small cases and malformed files. tests/python/word_piece_test.py compares with the
// package `tokenizers`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_directory.h"
#include "tests/text/small_tokenizer.h"
#include "text/model_tokenizer.h"

namespace seqfuse::word_piece_test {
namespace {

using testing::HasSubstr;
using text::error_of;
using text::Ids;
using text::Json;
using text::made;
using text::Tokenizer;

constexpr const char* kVocabulary =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##able\n##a\nable\n,\né\ne\n北\n";

Tokenizer small(const text::WordPieceOptions& options = {}) {
  return text::word_piece_tokenizer(kVocabulary, options, "vocab.txt");
}

std::string refusal(const std::string& vocabulary) {
  return error_of([&] { text::word_piece_tokenizer(vocabulary, {}, "vocab.txt"); });
}

TEST(WordPiece, TakesTheLongestTokenAtEachPlace) {
  EXPECT_EQ(small().encode("unable able"), (Ids{2, 4, 5, 7, 3}));
  EXPECT_EQ(small().encode("una"), (Ids{2, 4, 6, 3}));
  EXPECT_EQ(small().encode("unb un"), (Ids{2, 1, 4, 3}));  // the whole word is unknown
  EXPECT_EQ(small().encode(""), (Ids{2, 3}));
  EXPECT_EQ(small().encode("un", {.add_special_tokens = false}), (Ids{4}));
}

TEST(WordPiece, NormalizesAsBertDoes) {
  EXPECT_EQ(small().encode("UN,\u00e9\u0007\u5317un\tun"), (Ids{2, 4, 8, 10, 11, 4, 4, 3}));
  EXPECT_EQ(small({.strip_accents = false}).encode("\u00c9"), (Ids{2, 9, 3}));
  EXPECT_EQ(small({.lowercase = false}).encode("UN un \u00e9"), (Ids{2, 1, 4, 9, 3}));
  EXPECT_EQ(small({.spaced_ideographs = false}).encode("\u5317un"), (Ids{2, 1, 3}));
}

TEST(WordPiece, TruncationKeepsSpecialTokens) {
  EXPECT_EQ(small().encode("un un un", {.most_tokens = 4}), (Ids{2, 4, 4, 3}));
  EXPECT_EQ(small().encode("un un", {.most_tokens = 4}), (Ids{2, 4, 4, 3}));
  EXPECT_EQ(small().encode("un un", {.most_tokens = 2}), (Ids{2, 3}));
  EXPECT_NE(error_of([] { small().encode("un", {.most_tokens = 1}); }), "no error");
}

TEST(WordPiece, DecodesToWords) {
  EXPECT_EQ(small().decode(Ids{2, 4, 5, 8, 7, 3}), "unable, able");
  EXPECT_EQ(small().decode(Ids{5, 5}), "##ableable");  // the first token keeps its prefix
}

TEST(WordPiece, LongWordsAreUnknown) {
  EXPECT_EQ(small().encode("un" + std::string(98, 'a')).size(), 2 + 99U);
  EXPECT_EQ(small().encode("un" + std::string(99, 'a')), (Ids{2, 1, 3}));
}

TEST(WordPiece, AFolderHasOneOfTwoFiles) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(text::tokenizer_file(folder.path()).has_value());
  std::ofstream(folder.path() / "vocab.txt") << kVocabulary;
  std::ofstream(folder.path() / "tokenizer_config.json") << R"({"do_lower_case": false})";
  EXPECT_EQ(text::load_tokenizer(*text::tokenizer_file(folder.path())).encode("UN un"),
            (Ids{2, 1, 4, 3}));
  std::ofstream(folder.path() / "tokenizer.json") << text::small_tokenizer().dump();
  EXPECT_EQ(text::tokenizer_file(folder.path())->filename(), "tokenizer.json");
}

TEST(WordPiece, WrongVocabulariesAreNamed) {
  EXPECT_EQ(refusal("[CLS]\n[SEP]\n"),
            "vocab.txt has no token [UNK]; expected the vocabulary of a BERT");
  EXPECT_EQ(refusal("<s>\n[UNK]\n[CLS]\n"),
            "vocab.txt has no token [SEP]; expected the vocabulary of a BERT");
  EXPECT_EQ(refusal("[UNK]\n\nun\n"), "vocab.txt: line 2 is blank; expected a token");
  EXPECT_EQ(refusal("[UNK]\nun\nun\n"), "vocab.txt: line 3 has the token \"un\" a second time");
  EXPECT_EQ(refusal("[UNK]\n\xff\n"), "vocab.txt is not UTF-8: byte 6 begins no character");
}

TEST(WordPiece, TheLastLineMayBeBlank) {
  const std::string vocabulary = std::string(kVocabulary) + " \r\n";
  EXPECT_EQ(text::word_piece_tokenizer(vocabulary, {}, "vocab.txt").encode("un"), (Ids{2, 4, 3}));
  EXPECT_EQ(refusal(vocabulary + "\n"), "vocab.txt: line 13 is blank; expected a token");
}

// The error of loading `tokenizer` with `content` beside it.
std::string refusal_beside(const std::string& tokenizer, const std::string& content_of,
                           const char* beside, const std::string& content) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / tokenizer) << content_of;
  std::ofstream(folder.path() / beside) << content;
  return error_of([&] { text::load_tokenizer(folder.path() / tokenizer); });
}

TEST(WordPiece, OtherTokensBesideAVocabularyAreRefused) {
  const auto refused = [](const char* beside, const std::string& content) {
    return refusal_beside("vocab.txt", kVocabulary, beside, content);
  };
  constexpr const char* kConfig = "tokenizer_config.json";
  EXPECT_THAT(refused(kConfig, R"({"cls_token": "<s>"})"),
              HasSubstr("tokenizer_config.json: cls_token is \"<s>\"; with a vocab.txt it must be "
                        "\"[CLS]\""));
  EXPECT_THAT(refused("special_tokens_map.json", R"({"unk_token": {"content": "<unk>"}})"),
              HasSubstr("special_tokens_map.json: unk_token is \"<unk>\""));
  EXPECT_THAT(refused(kConfig, R"({"added_tokens_decoder": {"12": {"content": "[DOC]"}}})"),
              HasSubstr("added_tokens_decoder.12 is \"[DOC]\"; beside a vocab.txt only"));
  EXPECT_THAT(
      refused(kConfig, R"({"added_tokens_decoder": {"4": {"content": "[MASK]", "lstrip": true}}})"),
      HasSubstr("added_tokens_decoder.4 is \"[MASK]\""));
  EXPECT_THAT(refused("added_tokens.json", R"({"[DOC]": 12})"),
              HasSubstr("added_tokens.json: it adds the token \"[DOC]\""));
  EXPECT_THAT(refused(kConfig, R"({"do_basic_tokenize": false})"),
              HasSubstr("do_basic_tokenize is false"));
  EXPECT_THAT(refused(kConfig, R"({"never_split": ["x"]})"), HasSubstr("never_split has tokens"));
  EXPECT_EQ(refused(kConfig, R"({"cls_token": "[CLS]", "never_split": null, "mask_token":
                    {"content": "[MASK]"}, "added_tokens_decoder": {"0": {"content": "[PAD]"}}})"),
            "no error");
}

TEST(WordPiece, TwoFilesThatDisagreeAreRefused) {
  const auto refused = [](const Json& normalizer, const std::string& config) {
    Json tokenizer = text::small_tokenizer();
    tokenizer["normalizer"] = normalizer;
    return refusal_beside("tokenizer.json", tokenizer.dump(), "tokenizer_config.json", config);
  };
  const Json lower = {{"type", "BertNormalizer"}, {"lowercase", true}};
  EXPECT_THAT(refused(lower, R"({"do_lower_case": false})"),
              HasSubstr("tokenizer_config.json: do_lower_case is false, but the normalizer of "
                        "tokenizer.json says true: make the two files agree"));
  EXPECT_THAT(refused(lower, R"({"strip_accents": false})"), HasSubstr("strip_accents is false"));
  EXPECT_EQ(refused(lower, R"({"do_lower_case": true, "strip_accents": true})"), "no error");
  EXPECT_EQ(refused(nullptr, R"({"do_lower_case": false})"), "no error");
}

TEST(WordPiece, WrongMembersAreNamed) {
  const auto refused = [](const Json& model) {
    return error_of([&] { made({{"version", "1.0"}, {"model", model}}); });
  };
  EXPECT_EQ(refused({{"type", "WordLevel"}, {"vocab", {{"a", 0}}}}),
            "tokenizer.json: model \"WordLevel\" is not supported, only BPE and WordPiece are");
  EXPECT_EQ(refused({{"type", "WordPiece"}, {"vocab", {{"a", 0}, {"b", 0}}}})
                .find("tokenizer.json: model.vocab gives the id 0 to two tokens"),
            0);
  EXPECT_EQ(error_of([] {
              made({{"model", {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}}}}).encode("b");
            }),
            "the tokenizer has no tokens for \"b\", and its unk_token \"[UNK]\" is not in its "
            "vocabulary");
}

}  // namespace
}  // namespace seqfuse::word_piece_test
