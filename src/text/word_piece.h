// The WordPiece model of a tokenizer.json: the longest token at each place of a word.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_model.h"

namespace seqfuse::text {

class WordPiece final : public TokenModel {
 public:
  // model: the member "model". Throws DataError for members of a wrong type.
  explicit WordPiece(const JsonField& model);

  // A word of too many characters, or with a place where no token fits, is the unknown token.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  int32_t unknown_id(std::string_view word) const;

  std::string prefix_;  // of tokens that do not begin a word
  std::string unknown_token_;
  size_t longest_word_;       // characters
  size_t longest_token_ = 0;  // bytes
};

}  // namespace seqfuse::text
