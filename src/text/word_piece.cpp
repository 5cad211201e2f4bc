#include "text/word_piece.h"

#include <algorithm>

#include "base/error.h"

namespace seqfuse::text {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

}  // namespace

WordPiece::WordPiece(const JsonField& model)
    : TokenModel(model.member("vocab")),
      prefix_(model.text_or("continuing_subword_prefix", "##")),
      unknown_token_(model.text_or("unk_token", "[UNK]")),
      longest_word_(model.has("max_input_chars_per_word")
                        ? model.member("max_input_chars_per_word").count()
                        : 100) {
  for (const auto& [token, id] : vocabulary())
    longest_token_ = std::max(longest_token_, token.size());
}

void WordPiece::encode(std::string_view word, std::vector<int32_t>& ids) const {
  const auto characters =
      static_cast<size_t>(std::count_if(word.begin(), word.end(), begins_character));
  if (characters > longest_word_) {
    ids.push_back(unknown_id(word));
    return;
  }
  const size_t before = ids.size();
  std::string token;
  for (size_t begin = 0; begin < word.size();) {
    token.assign(begin > 0 ? prefix_ : "");
    const size_t prefix = token.size();
    token += word.substr(begin, longest_token_);
    // Shortens the token from its end, by characters, until the vocabulary has it.
    auto found = vocabulary().end();
    while (token.size() > prefix) {
      const size_t end = begin + token.size() - prefix;
      if (end == word.size() || begins_character(word[end])) {
        found = vocabulary().find(token);
        if (found != vocabulary().end()) break;
      }
      token.pop_back();
    }
    if (token.size() == prefix) {
      ids.resize(before);
      ids.push_back(unknown_id(word));
      return;
    }
    ids.push_back(found->second);
    begin += token.size() - prefix;
  }
}

int32_t WordPiece::unknown_id(std::string_view word) const {
  const auto found = vocabulary().find(unknown_token_);
  SEQFUSE_CHECK_AS(DataError, found != vocabulary().end(),
                   "the tokenizer has no tokens for \"{}\", and its unk_token \"{}\" is not in its "
                   "vocabulary",
                   word, unknown_token_);
  return found->second;
}

}  // namespace seqfuse::text
