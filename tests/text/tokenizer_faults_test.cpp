// Unusable tokenizer files: each error names the file, the path in it and the problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/temporary_directory.h"
#include "tests/text/small_tokenizer.h"

namespace seqfuse::text::tokenizer_faults_test {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const Json& json) {
  return error_of([&] { made(json); });
}

Json with(const char* pointer, const Json& value) {
  Json json = small_tokenizer();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(TokenizerFaults, FilesThatAreNoTokenizer) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "tokenizer.json";
  EXPECT_THAT(error_of([&] { Tokenizer::load(file); }), HasSubstr(file.string()));
  write_file_atomically(file, "{\"model\": ");
  EXPECT_THAT(error_of([&] { Tokenizer::load(file); }), StartsWith(file.string() + " is not JSON"));
  EXPECT_THAT(refusal(Json::array()), HasSubstr("no member \"model\""));
  EXPECT_THAT(refusal(with("/version", "2.0")), HasSubstr("version is 2.0, only 1.0"));
}

TEST(TokenizerFaults, UnknownTypesAreNamed) {
  const Json unknown = {{"type", "Whatever"}};
  EXPECT_THAT(refusal(with("/model/type", "Unigram")),
              HasSubstr("model \"Unigram\" is not supported"));
  EXPECT_THAT(refusal(with("/pre_tokenizer", unknown)), HasSubstr("pre_tokenizer \"Whatever\""));
  EXPECT_THAT(refusal(with("/normalizer", unknown)), HasSubstr("normalizer \"Whatever\""));
  EXPECT_THAT(refusal(with("/decoder", unknown)), HasSubstr("decoder \"Whatever\""));
  EXPECT_THAT(refusal(with("/post_processor", unknown)), HasSubstr("post_processor \"Whatever\""));
  EXPECT_THAT(refusal(with("/pre_tokenizer",
                           {{"type", "Sequence"}, {"pretokenizers", Json::array({unknown})}})),
              HasSubstr("pre_tokenizer.pretokenizers[0] \"Whatever\""));
  EXPECT_THAT(refusal(with("/model/dropout", 0.1)), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(refusal(with("/model/end_of_word_suffix", "</w>")),
              HasSubstr("\"</w>\" is not supported"));
}

TEST(TokenizerFaults, MergesAndVocabularyMustFit) {
  EXPECT_THAT(
      refusal(with("/model/merges/1", "ab zz")),
      AllOf(StartsWith("tokenizer.json: model.merges[1]"), HasSubstr("needs the token \"zz\"")));
  EXPECT_THAT(refusal(with("/model/merges/1", "b a")), HasSubstr("needs the token \"ba\""));
  EXPECT_THAT(refusal(with("/model/merges/1", "a b c")),
              HasSubstr("model.merges[1] is \"a b c\", expected two tokens"));
  EXPECT_THAT(refusal(with("/model/merges/1", Json::array({"a"}))),
              HasSubstr("expected two tokens"));
  EXPECT_THAT(refusal(with("/model/vocab/abc", 256)),
              HasSubstr("the id 256 to two tokens, \"ab\" and \"abc\""));
  EXPECT_THAT(refusal(with("/model/vocab/abc", -1)),
              HasSubstr("model.vocab.abc is -1, expected an id"));
  EXPECT_THAT(refusal(with("/model/vocab/abc", 4'000'000'000)),
              HasSubstr("expected an id from 0 to 16777215"));
}

TEST(TokenizerFaults, AddedTokens) {
  EXPECT_THAT(
      refusal(with("/added_tokens/0/id", 261)),
      HasSubstr(
          "added_tokens[0].id is 261, expected 259, which is the number of tokens before it"));
  EXPECT_THAT(refusal(with("/added_tokens/0/content", "abc")),
              HasSubstr("expected 257, which is the id of this token"));
  EXPECT_THAT(refusal(with("/added_tokens/0/content", "")),
              HasSubstr("added_tokens[0].content is \"\""));
  Json twice = small_tokenizer();
  twice["added_tokens"].push_back(twice["added_tokens"][0]);
  EXPECT_THAT(
      refusal(twice),
      HasSubstr(
          "added_tokens[1].content is \"<|end|>\", expected a token that is not added twice"));
}

TEST(TokenizerFaults, PatternsThatWouldMeanSomethingElse) {
  const auto pattern_error = [](const std::string& pattern) {
    return refusal(
        with("/pre_tokenizer",
             {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}}));
  };
  EXPECT_THAT(pattern_error("[a-z"), HasSubstr("missing terminating ]"));
  EXPECT_THAT(pattern_error("\\p{L}{1,3}+"), HasSubstr("a repetition {…} with + or ? after it"));
  EXPECT_THAT(pattern_error("\\bword"), HasSubstr("\\b is not supported"));
  EXPECT_THAT(pattern_error("[a-z&&[^b]]"), HasSubstr("&& inside a character class"));
  EXPECT_THAT(pattern_error("[[:alpha:]]"), HasSubstr("[: inside a character class"));
  EXPECT_THAT(pattern_error("(?m)."), HasSubstr("the option (?m)"));
  EXPECT_THAT(pattern_error("\\p{Nonsense}"), HasSubstr("unknown property"));
}

TEST(TokenizerFaults, StepsAndTemplates) {
  const Json byte_level = small_tokenizer()["pre_tokenizer"];
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_THAT(refusal(with("/pre_tokenizer",
                           {{"type", "Sequence"}, {"pretokenizers", {byte_level, digits}}})),
              HasSubstr("\"Digits\" comes after ByteLevel"));
  EXPECT_THAT(refusal(with("/pre_tokenizer", {{"type", "ByteLevel"}})),
              HasSubstr("add_prefix_space is missing"));
  Json nested = byte_level;
  for (int i = 0; i < 20; ++i)
    nested = {{"type", "Sequence"}, {"pretokenizers", Json::array({nested})}};
  EXPECT_THAT(refusal(with("/pre_tokenizer", nested)), HasSubstr("at most 8 levels are supported"));
  EXPECT_THAT(
      refusal(with("/post_processor", {{"type", "TemplateProcessing"}, {"single", Json::array()}})),
      HasSubstr("expected a template that holds the text"));
}

}  // namespace
}  // namespace seqfuse::text::tokenizer_faults_test
