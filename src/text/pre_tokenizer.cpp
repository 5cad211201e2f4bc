#include "text/pre_tokenizer.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "text/pattern.h"
#include "text/split_behavior.h"
#include "text/unicode/bert_characters.h"

namespace seqfuse::text {
namespace {

// GPT-2's: contractions; words, numbers and other runs with a preceding space; white space.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

auto splitter(Pattern pattern, SplitBehavior behavior, bool invert) {
  return [pattern = std::move(pattern), behavior, invert](std::string_view text,
                                                          const PreTokenizer::Visit& visit) {
    split_by(pattern, behavior, invert, text, visit);
  };
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonField& description) {
  add(description, 0);
}

void PreTokenizer::add(const JsonField& description, int depth) {
  const std::string type = description.member("type").text();
  SEQFUSE_CHECK_AS(DataError, !byte_level_,
                   "{} \"{}\" comes after ByteLevel, which must be the last step", description.path,
                   type);
  if (type == "Sequence") {
    check_nesting(description, depth);
    const JsonField inner = description.member("pretokenizers");
    for (size_t i = 0; i < inner.array_size(); ++i) add(inner.element(i), depth + 1);
  } else if (type == "ByteLevel") {
    add_byte_level(description);
  } else if (type == "Split") {
    steps_.emplace_back(splitter(Pattern::parse(description.member("pattern")),
                                 parse_split_behavior(description.member("behavior")),
                                 description.boolean_or("invert", false)));
  } else if (type == "Digits") {
    const bool individual = description.member("individual_digits").boolean();
    steps_.emplace_back(splitter(Pattern::regex("\\p{N}"),
                                 individual ? SplitBehavior::isolated : SplitBehavior::contiguous,
                                 false));
  } else if (type == "BertPreTokenizer") {
    steps_.emplace_back(split_bert_words);
  } else {
    throw_error<DataError>(
        "{} \"{}\" is not supported: BertPreTokenizer, ByteLevel, Split, Digits and Sequence are",
        description.path, type);
  }
}

void PreTokenizer::add_byte_level(const JsonField& description) {
  byte_level_ = true;
  if (description.member("add_prefix_space").boolean()) {
    steps_.emplace_back([](std::string_view text, const Visit& visit) {
      if (text.starts_with(' ')) {
        visit(text);
      } else {
        visit(" " + std::string(text));
      }
    });
  }
  if (description.boolean_or("use_regex", true)) {
    steps_.emplace_back(
        splitter(Pattern::regex(kByteLevelPattern), SplitBehavior::isolated, false));
  }
}

void PreTokenizer::run(size_t step, std::string_view text, const Visit& visit) const {
  if (step == steps_.size()) {
    visit(text);
  } else if (step + 1 == steps_.size()) {
    steps_[step](text, visit);
  } else {
    steps_[step](text, [&](std::string_view piece) { run(step + 1, piece, visit); });
  }
}

}  // namespace seqfuse::text
