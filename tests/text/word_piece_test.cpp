// BERT's tokenizer: small cases and malformed files. tests/python/word_piece_test.py compares with the
// package `tokenizers`.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_directory.h"
#include "tests/text/small_tokenizer.h"
#include "text/model_tokenizer.h"

namespace seqfuse::word_piece_test {
namespace {

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
  EXPECT_EQ(refusal("[UNK]\n\nun\n"), "vocab.txt: line 2 is blank; expected a token");
  EXPECT_EQ(refusal("[UNK]\nun\nun\n"), "vocab.txt: line 3 has the token \"un\" a second time");
  EXPECT_EQ(refusal("[UNK]\n\xff\n"), "vocab.txt is not UTF-8: byte 6 begins no character");
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
