// The parts of a tokenizer, as read from its file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"
#include "text/tokenizer.h"

namespace seqfuse::text {

struct Tokenizer::Data {
  explicit Data(const JsonField& root);

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const TokenModel> model;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokenFinder added, added_normalized;        // matched before and after normalization
  Vocabulary ids;                                  // all tokens
  std::vector<std::optional<std::string>> tokens;  // by id
  std::unordered_set<int32_t> special;             // ids

 private:
  std::vector<AddedToken> add_tokens(const JsonField& added_tokens);
  void check_template() const;
};

}  // namespace seqfuse::text
