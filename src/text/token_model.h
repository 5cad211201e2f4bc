// Turns pieces of text into ids: the member "model" of a tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/json_fields.h"

namespace seqfuse::text {

using Vocabulary = std::unordered_map<std::string, int32_t>;  // tokens in the file's spelling

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of a non-empty piece of valid UTF-8. Throws DataError if a part has no token and
  // the model's unk_token is not in the vocabulary.
  virtual void encode(std::string_view piece, std::vector<int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  // model.vocab. Throws DataError: not an object, two tokens with one id.
  explicit TokenModel(const JsonField& vocabulary);

 private:
  Vocabulary vocabulary_;
};

// BPE or WordPiece. byte_level: pieces are bytes rather than characters. Throws DataError that names
// another type.
std::unique_ptr<TokenModel> make_token_model(const JsonField& model, bool byte_level);

}  // namespace seqfuse::text
